package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/usmarray"
)

const root = "../../.."

func TestCheckRequirements(t *testing.T) {
	check := func(mod string) error { return checkRequirements([]byte("module m\n\n"+mod+"\n"), "v0.1.0") }
	require.NoError(t, check("require (\n\tgithub.com/usmbridge/usmbridge v0.1.0\n\tgithub.com/usmbridge/usmbridge/interop/flight v0.1.0 // indirect\n)"))
	require.NoError(t, check("require github.com/usmbridge/usmbridge v0.1.0\nrequire example.com/m v1.2.3"))
	require.ErrorContains(t, check("require github.com/usmbridge/usmbridge v0.0.0"), "requires github.com/usmbridge/usmbridge v0.0.0, want v0.1.0")
	require.ErrorContains(t, check("replace github.com/usmbridge/usmbridge => ../.."), "put it into go.work")
}

// TestSetVersion sets another version in a copy of the files that have one. The old version remains in none of
// them, and the modules can be released.
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
		if filepath.Base(name) == "go.mod" {
			require.NoError(t, checkRequirements(text, "v9.8.7"), name)
		}
	}
	require.ErrorContains(t, setVersion(tree, "9.8.7"), "want one such as v0.1.0")
}

// TestLinksAreLeftOut checks that the module has no symbolic links, as the go command makes it: otherwise -set would
// write hashes that no published module has.
func TestLinksAreLeftOut(t *testing.T) {
	tree, proxy := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(tree, "go.mod"), []byte("module m\n"), 0o600))
	require.NoError(t, os.Symlink("go.mod", filepath.Join(tree, "link")))
	require.NoError(t, writeModule(tree, proxy, "v0.1.0", ".", []string{"deleted", "go.mod", "link"}))
	z, err := zip.OpenReader(filepath.Join(proxy, rootModule, "@v", "v0.1.0.zip"))
	require.NoError(t, err)
	defer z.Close()
	require.Len(t, z.File, 1)
	require.Equal(t, rootModule+"@v0.1.0/go.mod", z.File[0].Name)
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

// TestModulesFromOutside gets, builds and installs the modules from outside the repository, by a
// proxy made from the tree. It compiles the nested modules, so it runs in `make test-nested` only.
func TestModulesFromOutside(t *testing.T) {
	if os.Getenv("USMBRIDGE_RELEASE") == "" {
		t.Skip("it compiles all nested modules; make test-nested sets USMBRIDGE_RELEASE=1")
	}
	const version = "v" + usmarray.Version
	dir := t.TempDir()
	require.NoError(t, writeProxy(root, filepath.Join(dir, "proxy"), version, order))
	env, err := proxyEnv(filepath.Join(dir, "proxy"), filepath.Join(dir, "cache"))
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
		run("go", "get", moduleOf(m)+"@"+version)
	}
	run("go", "mod", "tidy")
	require.Equal(t, "true 0\n", run("go", "run", "."))
	for command, option := range map[string]string{"interop/flight/cmd/usmflight": "-listen", "interop/inference/cmd/usmserve": "-models"} {
		run("go", "install", moduleOf(command)+"@"+version)
		// The exit status of -h is not 0 in all commands.
		out, _ := exec.CommandContext(t.Context(), filepath.Join(dir, "bin", filepath.Base(command)), "-h").CombinedOutput()
		require.Contains(t, string(out), option, command)
	}
}
