//go:build cgo && linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/memmgr"
)

// off measures the cost of the checks of USMBRIDGE_DEBUG while they are off. It builds this program twice, unchanged
// and without the expressions that test whether a check is on, and both run the same work in turns.
func (b *bench) off() {
	if err := b.tryOff(); err != nil {
		fmt.Fprintln(os.Stderr, "membench: off:", err)
	}
}

// checks are the expressions that test for a check, with their replacements.
var checks = map[string][]struct{ from, to string }{
	"memmgr": {
		{"stacks.Depth.Load() != 0", "(&stacks.Depth == nil)"}, {"debug.Stacks", "false"}, {"debug.Poison", "false"},
		{"|| p.watched", "|| p.trace != nil"}, {"p.watched ||", "p.trace != nil ||"},
		{"if !p.poisons", "if true"},
	},
}

func (b *bench) tryOff() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/usmbridge/usmbridge").Output()
	if err != nil {
		return fmt.Errorf("go list, in the module's directory: %w", err)
	}
	root := strings.TrimSpace(string(out))
	dir, err := os.MkdirTemp("", "membench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := withoutChecks(root, dir)
	if err != nil {
		return err
	}
	var both [2]*offChild
	for i, args := range [][]string{nil, {"-overlay", overlay}} {
		path := filepath.Join(dir, fmt.Sprint("membench", i))
		build := exec.Command("go", append(append([]string{"build", "-o", path}, args...), "./internal/bench/membench")...)
		build.Dir = root
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, text)
		}
		if both[i], err = startOff(path); err != nil {
			return err
		}
		defer both[i].end()
	}
	best := [2][len(offWorks)]float64{}
	for i := range best {
		for k := range best[i] {
			best[i][k] = math.Inf(1)
		}
	}
	for range 10 * b.rounds {
		for i, c := range both {
			times, err := c.turn()
			if err != nil {
				return err
			}
			for k := range times {
				best[i][k] = min(best[i][k], times[k])
			}
		}
	}
	for k, name := range offWorks {
		b.add(result{
			Work: "debug off: " + name, Ours: best[0][k], Peer: best[1][k], Name: "a build without the checks",
			Unit: "ns", Ratio: best[0][k] / best[1][k], Bound: 1.03,
		})
	}
	return nil
}

// withoutChecks writes copies of the files without these expressions, and an overlay for go build.
func withoutChecks(root, dir string) (string, error) {
	replace := map[string]string{}
	for pkg, all := range checks {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			return "", err
		}
		found := make([]bool, len(all))
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			old, err := os.ReadFile(file) //nolint:gosec // Of the module.
			if err != nil {
				return "", err
			}
			text := old
			for i, c := range all {
				found[i] = found[i] || bytes.Contains(text, []byte(c.from))
				text = bytes.ReplaceAll(text, []byte(c.from), []byte(c.to))
			}
			if bytes.Equal(text, old) {
				continue
			}
			as := filepath.Join(dir, pkg+"_"+filepath.Base(file))
			if err := os.WriteFile(as, text, 0o600); err != nil {
				return "", err
			}
			replace[file] = as
		}
		for i, ok := range found {
			if !ok {
				return "", fmt.Errorf("package %s has no %q; update the list in membench/off.go", pkg, all[i].from)
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// An offChild is a process that does the works once for each line that it reads.
type offChild struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startOff(path string) (*offChild, error) {
	c := &offChild{cmd: exec.Command(path, "-turns")} //nolint:gosec // Just built.
	c.cmd.Stderr = os.Stderr
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, memmgr.DebugEnv+"=") {
			c.cmd.Env = append(c.cmd.Env, e)
		}
	}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

func (c *offChild) turn() (times [len(offWorks)]float64, err error) {
	if _, err := fmt.Fprintln(c.in); err != nil {
		return times, err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return times, err
	}
	_, err = fmt.Sscan(line, &times[0], &times[1])
	return times, err
}

func (c *offChild) end() {
	c.in.Close()
	_ = c.cmd.Wait()
}

var offWorks = [...]string{"4 KiB, New and Release", "20 MiB, New and Release"}

// offTurns is the child.
func offTurns(in io.Reader, out io.Writer) error {
	const each = 2000
	p := hostPool()
	defer closePool(p)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		buffers, large := float64(oneSize(p, 4096, each))/each, float64(oneSize(p, 20<<20, each))/each
		if _, err := fmt.Fprintln(out, buffers, large); err != nil {
			return err
		}
	}
	return lines.Err()
}
