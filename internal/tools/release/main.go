// Command release prepares a release of all modules of this repository (docs/releasing.md).
//
//	go run ./internal/tools/release -version v0.1.0
//
// It writes the version where the tree has it. Then it runs `go mod tidy` in each module, which writes the hashes of
// modules of this repository that are not published yet: git commits the tree to a repository of its own with the tags of
// the release, and the go command takes them from there. The modules are in the order of [order], because the hash of a
// module includes its own go.sum.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"go.uber.org/multierr"
)

const rootModule = "github.com/usmbridge/usmbridge"

// order lists the directories of the released modules. A module requires modules before it only.
var order = []string{".", "interop/embedpython", "interop/flight", "interop/metrics", "interop/pressure", "interop/inference"}

// example is a module that is not released, but builds with the released ones.
const example = "examples/embedded"

func main() {
	version := flag.String("version", "", "the `version` to release, such as v0.1.0")
	flag.Parse()
	err := setVersion(".", *version)
	if err == nil {
		err = updateSums(*version)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// publish commits the files below root that git does not ignore to the repository repo, and tags them as a version of
// the modules in the given directories. The repository of root says which files are ignored; its objects and its index
// stay as they are.
func publish(root, repo, version string, dirs ...string) error {
	var out strings.Builder // of the last command
	git := func(args ...string) error {
		out.Reset()
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = root, &out, os.Stderr
		cmd.Env = append(os.Environ(), "GIT_INDEX_FILE="+filepath.Join(repo, "index"), "GIT_OBJECT_DIRECTORY="+filepath.Join(repo, "objects"))
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%v: %w", cmd.Args, err)
		}
		return nil
	}
	err := multierr.Combine(git("init", "--quiet", "--bare", repo), git("add", "--all"), git("write-tree"))
	if err == nil {
		err = git("-c", "user.name=release", "-c", "user.email=release@localhost", "commit-tree", "-m", version, strings.TrimSpace(out.String()))
	}
	commit := strings.TrimSpace(out.String())
	for _, dir := range dirs {
		err = multierr.Append(err, git("--git-dir", repo, "update-ref", path.Join("refs/tags", dir, version), commit))
	}
	return err
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
		return fmt.Errorf("-version %q: want one such as v0.1.0", version)
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
	repo := filepath.Join(dir, "repository")
	env, err := goEnv(repo, filepath.Join(dir, "cache"))
	if err != nil {
		return err
	}
	for _, module := range append(order[:len(order):len(order)], example) {
		cmd := exec.Command("go", "mod", "tidy")
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = module, env, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go mod tidy in %s: %w", module, err)
		}
		if err := publish(".", repo, version, module); err != nil {
			return err
		}
	}
	return nil
}

// goEnv returns an environment in which the go command takes modules of this repository from a repository that
// publish wrote, and all others from the user's module cache or the usual proxies.
func goEnv(repo, cache string) ([]string, error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	users, usual, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+repo+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+rootModule,
		"GOPRIVATE="+rootModule, "GOPROXY=file://"+filepath.ToSlash(users)+"/cache/download,"+usual,
		"GOMODCACHE="+cache, "GOFLAGS=-modcacherw", "GOWORK=off"), nil
}
