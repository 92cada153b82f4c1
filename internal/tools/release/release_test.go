package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/usmarray"
)

const root = "../../.."

// TestSetVersion sets another version in a copy of the files that have one. The old version remains in none of
// them.
func TestSetVersion(t *testing.T) {
	tree := t.TempDir()
	files := []string{"go.work", "usmarray/version.go", "README.md", example + "/go.mod"}
	for _, dir := range order {
		files = append(files, dir+"/go.mod")
	}
	for _, name := range files {
		text := testenv.Must(os.ReadFile(filepath.Join(root, name)))(t)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), text, 0o600))
	}
	require.NoError(t, setVersion(tree, "v9.8.7"))
	for _, name := range files {
		text := testenv.Must(os.ReadFile(filepath.Join(tree, name)))(t)
		require.NotContains(t, string(text), "usmbridge v"+usmarray.Version, name)
		require.NotContains(t, string(text), "ersion "+usmarray.Version, name)
		require.NotContains(t, string(text), `"`+usmarray.Version+`"`, name)
	}
	require.ErrorContains(t, setVersion(tree, "9.8.7"), "want one such as v0.1.0")
}

// A module has no files that only this clone of the repository excludes: their hashes would not be those of the tags.
func TestLocallyExcludedFilesAreNotPublished(t *testing.T) {
	tree, repo := t.TempDir(), filepath.Join(t.TempDir(), "repository")
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	git("-C", tree, "init", "--quiet")
	for name, text := range map[string]string{"a.go": "", "b.go": "", "c.go": "", ".gitignore": "b.go", ".git/info/exclude": "c.go"} {
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o600))
	}
	for range 2 { // updateSums publishes one module after the other
		require.NoError(t, publish(tree, repo, "v0.1.0", "."))
		require.Equal(t, ".gitignore\na.go\n", git("--git-dir", repo, "ls-tree", "--name-only", "v0.1.0"))
	}
}

// TestPublishInHook checks that publish does not write the index of the user's repository if a hook of git runs it.
func TestPublishInHook(t *testing.T) {
	tree := t.TempDir()
	require.NoError(t, exec.CommandContext(t.Context(), "git", "-C", tree, "init", "--quiet").Run())
	index := filepath.Join(tree, "index")
	require.NoError(t, os.WriteFile(filepath.Join(tree, "go.mod"), []byte("module m\n"), 0o600))
	t.Setenv("GIT_INDEX_FILE", index)
	require.NoError(t, publish(tree, filepath.Join(t.TempDir(), "repository"), "v0.1.0", "."))
	require.NoFileExists(t, index)
}

// user is a program in a module outside the repository.
const user = `package main

import (
	"fmt"

	"github.com/usmbridge/usmbridge/interop/metrics"
	"github.com/usmbridge/usmbridge/memmgr"
)

func main() {
	p := memmgr.NewPool(memmgr.Host())
	defer p.Close()
	fmt.Println(metrics.NewCollector != nil, p.Stats().ReservedBytes.Current)
}
`

// TestModulesFromOutside gets, builds and installs the modules from outside the repository, as their tags would have
// them. This fails if a module requires another version of a module of this repository, or if a go.mod has a replace
// directive. It compiles the nested modules, so it runs in `make test-nested` only.
func TestModulesFromOutside(t *testing.T) {
	if os.Getenv("USMBRIDGE_RELEASE") == "" {
		t.Skip("it compiles all nested modules; make test-nested sets USMBRIDGE_RELEASE=1")
	}
	const version = "v" + usmarray.Version
	dir := t.TempDir()
	repo := filepath.Join(dir, "repository")
	require.NoError(t, publish(root, repo, version, order...))
	env, err := goEnv(repo, filepath.Join(dir, "cache"))
	require.NoError(t, err)
	env = append(env, "GOBIN="+filepath.Join(dir, "bin"), "GOFLAGS=-modcacherw -trimpath")
	module := filepath.Join(dir, "user")
	require.NoError(t, os.Mkdir(module, 0o750))
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = module, env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %v\n%s", name, args, out)
		return string(out)
	}
	run("go", "mod", "init", "example.com/user")
	require.NoError(t, os.WriteFile(filepath.Join(module, "main.go"), []byte(user), 0o600))
	for _, m := range order {
		run("go", "get", path.Join(rootModule, m)+"@"+version)
	}
	run("go", "mod", "tidy")
	require.Equal(t, "true 0\n", run("go", "run", "."))
	for command, option := range map[string]string{"interop/flight/cmd/usmflight": "-listen", "interop/inference/cmd/usmserve": "-models"} {
		run("go", "install", rootModule+"/"+command+"@"+version)
		// The exit status of -h is not 0 in all commands.
		out, _ := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", filepath.Base(command)), "-h").CombinedOutput()
		require.Contains(t, string(out), option, command)
	}
}
