// Command release prepares a release of all modules of this repository (docs/releasing.md).
//
//	go run ./internal/tools/release -version v0.1.0 -set         write the version and the hashes of the modules
//	go run ./internal/tools/release -version v0.1.0 -proxy DIR   write a module proxy of the tree
//
// The proxy has the files of a GOPROXY: for each module its go.mod and a zip of its files, as a
// server would make them from the tags. -set writes the version where the tree has it, and runs
// `go mod tidy` against such a proxy, which writes the hashes of modules that are not published yet.
// It runs in the order of [order], because the hash of a module includes its own go.sum.
package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const rootModule = "github.com/usmbridge/usmbridge"

// order lists the directories of the released modules. A module requires modules before it only.
var order = []string{".", "interop/embedpython", "interop/flight", "interop/metrics", "interop/pressure", "interop/inference"}

// example is a module that is not released, but builds with the released ones.
const example = "examples/embedded"

func main() {
	version := flag.String("version", "", "the `version` to release, such as v0.1.0")
	proxy := flag.String("proxy", "", "write a module proxy to this `directory`")
	set := flag.Bool("set", false, "write the version and the hashes of the modules into the tree")
	flag.Parse()
	err := errors.New("-version and one of -proxy and -set are required")
	switch {
	case *version == "" || flag.NArg() > 0:
	case *proxy != "":
		err = writeProxy(".", *proxy, *version, order)
	case *set:
		if err = setVersion(".", *version); err == nil {
			err = updateSums(*version)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// moduleOf returns the path of the module in a directory of the repository.
func moduleOf(dir string) string {
	return path.Join(rootModule, filepath.ToSlash(dir))
}

// writeProxy writes a module proxy with one version of the modules in the given directories below
// root. It contains the files that git lists, so ignored files do not get in.
func writeProxy(root, proxy, version string, dirs []string) error {
	files, err := trackedFiles(root)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := writeModule(root, proxy, version, dir, files); err != nil {
			return fmt.Errorf("module %s: %w", moduleOf(dir), err)
		}
	}
	return nil
}

func trackedFiles(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", root, err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\x00"), func(name string) bool { return name == "" }), nil
}

func writeModule(root, proxy, version, dir string, files []string) error {
	mod, err := os.ReadFile(filepath.Join(root, dir, "go.mod")) //nolint:gosec // A file of the repository.
	if err != nil {
		return err
	}
	if err := checkRequirements(mod, version); err != nil {
		return err
	}
	prefix := ""
	if dir != "." {
		prefix = dir + "/"
	}
	var nested []string // directories of other modules
	for _, name := range files {
		if sub, ok := strings.CutSuffix(name, "/go.mod"); ok && sub != dir {
			nested = append(nested, sub+"/")
		}
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for _, name := range files {
		inner, ok := strings.CutPrefix(name, prefix)
		if !ok || slices.ContainsFunc(nested, func(n string) bool { return strings.HasPrefix(n, prefix) && strings.HasPrefix(name, n) }) {
			continue
		}
		file := filepath.Join(root, name)
		info, err := os.Lstat(file)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // deleted and not committed, or a symbolic link, which the go command leaves out
		}
		text, err := os.ReadFile(file) //nolint:gosec // A file of the repository.
		if err != nil {
			return err
		}
		w, err := z.Create(moduleOf(dir) + "@" + version + "/" + inner)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	at := filepath.Join(proxy, filepath.FromSlash(moduleOf(dir)), "@v")
	if err := os.MkdirAll(at, 0o750); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": []byte(`{"Version":"` + version + `"}`),
		version + ".mod":  mod,
		version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

var (
	replaceLine = regexp.MustCompile(`^\s*replace\b`)
	requireLine = regexp.MustCompile(`^\s*(?:require\s+)?(` + regexp.QuoteMeta(rootModule) + `(?:/\S+)?)\s+(v\S+)`)
)

// checkRequirements returns an error if a go.mod cannot be used outside the repository: if it has a
// replace directive, or requires another version of a module of this repository.
func checkRequirements(mod []byte, version string) error {
	for s := bufio.NewScanner(bytes.NewReader(mod)); s.Scan(); {
		line := s.Text()
		if replaceLine.MatchString(line) {
			return fmt.Errorf("go.mod has %q; put it into go.work", strings.TrimSpace(line))
		}
		if m := requireLine.FindStringSubmatch(line); m != nil && m[2] != version {
			return fmt.Errorf("go.mod requires %s %s, want %s", m[1], m[2], version)
		}
	}
	return nil
}

// The lines of the tree with a version, as the text before it and the version.
var (
	moduleLine = regexp.MustCompile(`(` + regexp.QuoteMeta(rootModule) + `\S* v)\d\S*`)
	constLine  = regexp.MustCompile(`(const Version = ")[^"]*`)
	statusLine = regexp.MustCompile(`(?m)^(Version )\d+\.\d+\.\d+`)
)

// setVersion writes the version into the files that have it.
func setVersion(root, version string) error {
	number, ok := strings.CutPrefix(version, "v")
	if !ok {
		return fmt.Errorf("version %s: want one such as v0.1.0", version)
	}
	lines := map[string]*regexp.Regexp{"go.work": moduleLine, "usmarray/version.go": constLine, "README.md": statusLine}
	for _, dir := range append(order[1:len(order):len(order)], example) {
		lines[dir+"/go.mod"] = moduleLine
	}
	for name, line := range lines {
		file := filepath.Join(root, name)
		text, err := os.ReadFile(file) //nolint:gosec // A file of the repository.
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, line.ReplaceAll(text, []byte("${1}"+number)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// updateSums writes the hashes of the modules of this repository into go.sum of those that require
// them. It uses a module cache of its own, so that an unpublished version never gets into the
// user's.
func updateSums(version string) error {
	dir, err := os.MkdirTemp("", "usmbridge-release-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	env, err := proxyEnv(filepath.Join(dir, "proxy"), filepath.Join(dir, "cache"))
	if err != nil {
		return err
	}
	for _, module := range append(order[:len(order):len(order)], example) {
		cmd := exec.Command("go", "mod", "tidy")
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = module, env, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go mod tidy in %s: %w", module, err)
		}
		if err := writeProxy(".", filepath.Join(dir, "proxy"), version, []string{module}); err != nil {
			return err
		}
	}
	return nil
}

// proxyEnv returns an environment in which the go command takes modules of this repository from a
// proxy in a directory, and all others from the user's module cache or the usual proxies.
func proxyEnv(proxy, cache string) ([]string, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	users, usual, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(users)+"/cache/download,"+usual,
		"GOMODCACHE="+cache, "GONOSUMDB="+path.Dir(rootModule)+"/*", "GOPRIVATE=",
		"GOFLAGS=-modcacherw", "GOWORK=off"), nil
}
