package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/usmbridge/usmbridge"

// layer is a directory of the module, and the directories that the packages below it may use. The
// longest matching path applies.
type layer struct {
	path string
	uses []string
}

var layers = []layer{
	{"internal/owner", nil},
	{"syclobj", []string{"internal"}},
	{"dlpack", nil},
	{"internal", nil},
	{"memmgr", []string{"internal", "internal/owner", "syclobj"}},
	{"usmarray", []string{"memmgr", "internal/owner", "internal", "syclobj", "dlpack"}},
	{"interop/internal/transfer/transfertest", []string{"usmarray", "memmgr", "internal/owner", "internal", "internal/testenv", "syclobj", "dlpack"}},
	{"internal/testenv", []string{"interop", "usmarray", "memmgr", "internal/owner", "internal", "syclobj", "dlpack"}}, // in no other list: for tests
	{"interop", []string{"usmarray", "memmgr", "internal/owner", "internal", "syclobj", "dlpack"}},
	{"internal/bench", []string{"memmgr", "internal/owner", "internal", "syclobj"}},
	{"internal/tools", []string{"interop", "usmarray", "memmgr", "internal/owner", "internal", "syclobj", "dlpack"}},
	{"examples", []string{"interop", "usmarray", "memmgr", "internal/owner", "internal", "syclobj", "dlpack"}},
}

// modules lists the external modules that packages other than tests may use.
var modules = []string{"go.uber.org/multierr", "golang.org/x/sync", "github.com/x448/float16"}

type goPackage struct {
	ImportPath string
	Name       string
	Dir        string
	Standard   bool
	Deps       []string
	CFiles     []string
	HFiles     []string
	GoFiles    []string
	CgoFiles   []string
	Module     *struct{ Path string }
}

// list runs `go list -deps` over the module and returns all packages and their dependencies.
func list(t *testing.T) map[string]goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Dir,Standard,Deps,GoFiles,CFiles,HFiles,CgoFiles,Module", module+"/...")
	cmd.Env = append(os.Environ(), "GOWORK=off") // this module without the nested ones
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	found := map[string]goPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		found[p.ImportPath] = p
	}
}

// layerOf returns the layer of a package of this module.
func layerOf(path string) (layer, bool) {
	rel := strings.TrimPrefix(path, module+"/")
	best, ok := layer{}, false
	for _, l := range layers {
		if (rel == l.path || strings.HasPrefix(rel, l.path+"/")) && len(l.path) > len(best.path) {
			best, ok = l, true
		}
	}
	return best, ok
}

func ours(path string) bool { return strings.HasPrefix(path, module+"/") }

func TestImportsPointDown(t *testing.T) {
	seen := map[string]bool{}
	for path, p := range list(t) {
		if !ours(path) {
			continue
		}
		l, ok := layerOf(path)
		require.True(t, ok, "%s lies in no layer; add it to the table or move it", path)
		seen[l.path] = true
		for _, dep := range p.Deps {
			if !ours(dep) {
				continue
			}
			d, _ := layerOf(dep)
			require.True(t, d.path == l.path || slices.Contains(l.uses, d.path),
				"%s (layer %s) depends on %s (layer %s)", path, l.path, dep, d.path)
		}
	}
	for _, l := range layers {
		require.True(t, seen[l.path], "no package in layer %s: the table is out of date", l.path)
	}
}

func TestLibraryPullsInFewModules(t *testing.T) {
	packages := list(t)
	for path, p := range packages {
		// Packages that help tests, named …test or below internal/testenv, may use the modules of tests.
		// The packages that users import cannot depend on them without failing here.
		if !ours(path) || strings.HasSuffix(path, "test") || strings.HasPrefix(path, module+"/internal/testenv/") {
			continue
		}
		for _, dep := range p.Deps {
			if d := packages[dep]; !ours(dep) && d.Module != nil {
				require.Contains(t, modules, d.Module.Path, "%s needs %s; heavy dependencies live in nested modules", path, dep)
			}
		}
	}
}

// TestNestedModulesAvoidInternal checks that nested modules import no internal package of the root module: these
// change without notice, and the modules may have different versions.
func TestNestedModulesAvoidInternal(t *testing.T) {
	root := "../../.."
	imports := regexp.MustCompile(`"` + module + `/internal/[^"]*"`)
	nested := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == root {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err != nil {
			return nil //nolint:nilerr // A directory of the module itself.
		}
		nested++
		return filepath.WalkDir(path, func(file string, d os.DirEntry, err error) error {
			ofTests := strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test")
			if err != nil || !strings.HasSuffix(file, ".go") || ofTests {
				return err
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, string(imports.Find(text)), "%s is part of a nested module", file)
			return nil
		})
	}))
	require.NotZero(t, nested)
}

var includes = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]`)

// foreign matches headers of other projects, which the build must not need.
var foreign = regexp.MustCompile(`(?i)python\.h|dpctl|sycl/|CL/|dlpack/dlpack\.h|level_zero|umf`)

func TestCIncludesPointDown(t *testing.T) {
	packages := list(t)
	home := map[string]string{} // header -> layer
	for path, p := range packages {
		if ours(path) {
			l, _ := layerOf(path)
			for _, h := range p.HFiles {
				require.NotContains(t, home, h, "two headers of one name: the include path would decide between them")
				home[h] = l.path
			}
		}
	}
	for path, p := range packages {
		if !ours(path) {
			continue
		}
		l, _ := layerOf(path)
		for _, name := range slices.Concat(p.CFiles, p.HFiles, p.CgoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			for _, m := range includes.FindAllSubmatch(text, -1) {
				header := filepath.Base(string(m[2]))
				to, isOurs := home[header]
				if quoted := string(m[1]) == `"`; !quoted || !isOurs {
					require.False(t, foreign.Match(m[2]), "%s/%s includes a foreign header: %s", path, name, m[2])
					continue
				}
				require.True(t, to == l.path || slices.Contains(l.uses, to),
					"%s/%s includes %s of layer %s", path, name, header, to)
			}
		}
	}
}

// TestNoescapeImpliesNocallback: Go passes the address of a variable on the stack to a C function that is marked
// as noescape. If C calls Go, the stack may grow and move, and C keeps the old address.
func TestNoescapeImpliesNocallback(t *testing.T) {
	mark := regexp.MustCompile(`(?m)^#cgo (noescape|nocallback) (\w+)`)
	for path, p := range list(t) {
		if !ours(path) {
			continue
		}
		for _, name := range p.CgoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			marks := map[string][]string{}
			for _, m := range mark.FindAllSubmatch(text, -1) {
				marks[string(m[1])] = append(marks[string(m[1])], string(m[2]))
			}
			require.Subset(t, marks["nocallback"], marks["noescape"], "%s/%s", path, name)
		}
	}
}

// TestPythonStaysInInterop checks that the C code of the layers below interop has no names of CPython.
func TestPythonStaysInInterop(t *testing.T) {
	names := regexp.MustCompile(`\bPy(Object|GILState|Capsule|Err|Long|Dict|Tuple)[A-Za-z_]*\b`)
	comment := regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	for path, p := range list(t) {
		if l, ok := layerOf(path); !ours(path) || !ok || slices.Contains([]string{"interop", "internal/tools", "examples"}, l.path) {
			continue
		}
		for _, name := range slices.Concat(p.CFiles, p.HFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			require.Empty(t, string(names.Find(comment.ReplaceAll(text, nil))), "%s/%s", path, name)
		}
	}
}
