package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// install runs pip for the set and writes the stamp when everything fits. Unless the stamp
// states that all packages of the set were verified when they were installed, pip installs them
// again: it verifies the files that it installs, not those that are there.
func (v *venv) install(ctx context.Context, want packageSet) error {
	began := time.Now()
	tmp, err := os.MkdirTemp("", "usmbridge-setup-")
	if err != nil {
		return fmt.Errorf("a directory for the lists of packages: %w", err)
	}
	defer os.RemoveAll(tmp)
	list, err := want.write(tmp)
	if err != nil {
		return err
	}
	say("installing the packages of internal/tools/setup/%s into %s", want.file, v.dir)
	var flags []string
	if s, _ := v.readStamp(); !s.Verified || s.Hashes[want.name] == "" {
		flags = append(flags, "--force-reinstall")
	}
	if err := v.pipInstall(ctx, list, flags...); err != nil {
		return err
	}
	if err := v.run(ctx, "-m", "pip", "check"); err != nil {
		return fmt.Errorf("the installed packages do not fit together: %w", err)
	}
	if err := v.writeStamp(ctx, want); err != nil {
		return err
	}
	say("done in %d s", int(time.Since(began).Seconds()+0.5))
	return nil
}

// pipInstall installs the packages of a requirements file whose hashes match. It prints a line
// for each download and writes pip's whole output to pip.log.
func (v *venv) pipInstall(ctx context.Context, list string, flags ...string) error {
	log, err := os.Create(filepath.Join(v.dir, "pip.log"))
	if err != nil {
		return fmt.Errorf("pip's log: %w", err)
	}
	defer log.Close()
	args := append([]string{"-m", "pip", "install", "--require-hashes", "--no-deps", "--only-binary=:all:",
		"--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=3",
		"--requirement", list}, flags...)
	cmd := exec.CommandContext(ctx, v.python(), args...)
	cmd.Env = cleanPythonEnv()
	read, write := io.Pipe()
	var last tail
	cmd.Stdout = write
	cmd.Stderr = io.MultiWriter(log, &last)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		showDownloads(io.TeeReader(read, log))
	}()
	stop := heartbeat("installing")
	err = cmd.Run()
	stop()
	write.Close()
	<-shown
	if err != nil {
		return fmt.Errorf("pip install failed (%w):\n%s\n%s\nAll of pip's output is in %s",
			err, last.String(), pipHint(last.String()), log.Name())
	}
	return nil
}

// showDownloads prints what pip says it downloads and installs.
func showDownloads(r io.Reader) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if name, ok := strings.CutPrefix(line, "Downloading "); ok && !strings.Contains(name, ".metadata") {
			say("  downloading %s", shortWheel(name))
		} else if strings.HasPrefix(line, "Installing collected packages") {
			say("  unpacking")
		}
	}
	// A line longer than the buffer ends the scan; pip must not block on it.
	_, _ = io.Copy(io.Discard, r)
}

// shortWheel turns "https://…/dpctl-0.22.1-0-cp311-….whl (65.4 MB)" into
// "dpctl 0.22.1 (65.4 MB)".
func shortWheel(s string) string {
	file, size, _ := strings.Cut(s, " ")
	file = file[strings.LastIndexByte(file, '/')+1:]
	if parts := strings.Split(file, "-"); strings.HasSuffix(file, ".whl") && len(parts) >= 5 {
		file = parts[0] + " " + parts[1]
	}
	return strings.TrimSpace(file + " " + size)
}

// writeStamp records the set, replacing the stamp in one step.
func (v *venv) writeStamp(ctx context.Context, want packageSet) error {
	version, err := v.version(ctx)
	if err != nil {
		return fmt.Errorf("asking the environment's Python for its version: %w", err)
	}
	s := stamp{Set: want.name, Python: version, Hashes: map[string]string{}, Verified: true}
	for _, name := range []string{"run", "test"} {
		if want.includes(name) {
			set, err := requirements(name)
			if err != nil {
				return err
			}
			s.Hashes[name] = set.hash
		}
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(v.dir, stampName)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the stamp: %w", err)
	}
	return os.Rename(path+".new", path)
}

// heartbeat says every ten seconds that the work goes on, until stopped.
func heartbeat(what string) (stop func()) {
	began, done := time.Now(), make(chan struct{})
	go func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				say("  still %s (%d s)", what, int(time.Since(began).Seconds()))
			}
		}
	}()
	return func() { close(done) }
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

// Write keeps the last 4 KiB.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if extra := len(t.text) - 4096; extra > 0 {
		t.text = t.text[extra:]
	}
	return len(p), nil
}

// String returns the last ten lines, without pip's account of its attempts.
func (t *tail) String() string {
	lines := strings.Split(strings.TrimRight(string(t.text), "\n"), "\n")
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "WARNING: Retrying") })
	if len(lines) > 10 {
		lines = lines[len(lines)-10:]
	}
	return strings.Join(lines, "\n")
}

// pipHint explains the failures of pip that have a known remedy.
func pipHint(output string) string {
	if strings.Contains(output, "DO NOT MATCH THE HASHES") {
		return "The file that the package index delivered is not the pinned file, and it was not installed. Check the index " +
			"(PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, pip's configuration); after a broken download run `pip cache purge`."
	}
	return networkHint(output)
}

// networkHint explains output that speaks of a failed connection.
func networkHint(output string) string {
	for _, sign := range []string{"name resolution", "no such host", "Name or service not known", "NewConnectionError",
		"Connection refused", "connection refused", "Network is unreachable", "network is unreachable", "dial tcp",
		"timed out", "i/o timeout", "ProxyError", "Could not find a version"} {
		if strings.Contains(output, sign) {
			return "This looks like no connection to the package index: set-up downloads once from PyPI (and, " +
				"for Python itself, from the Go module proxy). Check the network, or PIP_INDEX_URL, HTTPS_PROXY and GOPROXY."
		}
	}
	if strings.Contains(output, "No space left") || strings.Contains(output, "no space left") {
		return "The disk is full: the environment takes 2 GB for `make run`, 4 GB for `make test`."
	}
	return ""
}

func lastLine(out []byte) string {
	s := strings.TrimRight(string(out), "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}
