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
	{"memmgr", []string{"internal", "internal/owner", "internal/cells", "syclobj"}}, // cells: for its tests
	{"internal/cells", []string{"memmgr", "internal/owner", "internal", "syclobj"}},
	{"usmarray", []string{"memmgr", "internal/cells", "internal/owner", "internal", "syclobj", "dlpack"}},
	{"interop/internal/transfer/transfertest", []string{"usmarray", "memmgr", "internal/cells", "internal/owner", "internal", "internal/testenv", "syclobj", "dlpack"}},
	{"interop/internal/forktest", []string{"interop", "internal/testenv", "usmarray", "memmgr", "internal/cells", "internal/owner", "internal", "syclobj", "dlpack"}},
	{"internal/testenv", []string{"interop", "usmarray", "memmgr", "internal/cells", "internal/owner", "internal", "syclobj", "dlpack"}}, // in no other list: for tests
	{"interop", []string{"usmarray", "memmgr", "internal/cells", "internal/owner", "internal", "syclobj", "dlpack"}},
	{"internal/pypackage/extension", []string{"internal", "interop", "usmarray", "memmgr", "internal/cells", "internal/owner", "syclobj", "dlpack"}},
	{"internal/bench", []string{"memmgr", "internal/cells", "internal/owner", "internal", "syclobj"}},
	{"internal/tools", []string{"interop", "usmarray", "memmgr", "internal/cells", "internal/owner", "internal", "syclobj", "dlpack"}},
	{"examples", []string{"interop", "usmarray", "memmgr", "internal/cells", "internal/owner", "internal", "syclobj", "dlpack"}},
}

// modules lists the external modules that packages other than tests may use.
var modules = []string{"go.uber.org/multierr", "github.com/x448/float16"}

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

// layerOf returns the layer of a package of this module. Other packages have none.
func layerOf(path string) (best layer) {
	rel := strings.TrimPrefix(path, module+"/")
	for _, l := range layers {
		if (rel == l.path || strings.HasPrefix(rel, l.path+"/")) && len(l.path) > len(best.path) {
			best = l
		}
	}
	return best
}

func ours(path string) bool { return strings.HasPrefix(path, module+"/") }

// mayUse reports whether packages of layer l may use those of the layer other.
func (l layer) mayUse(other string) bool { return l.path == other || slices.Contains(l.uses, other) }

func TestImportsPointDown(t *testing.T) {
	require.False(t, layerOf(module+"/memmgr/arena").mayUse("usmarray"))
	require.False(t, layerOf(module+"/dlpack/cute").mayUse("syclobj"))
	seen := map[string]bool{}
	packages := list(t)
	for path, p := range packages {
		if !ours(path) {
			continue
		}
		l := layerOf(path)
		require.NotEmpty(t, l.path, "%s lies in no layer; add it to the table or move it", path)
		seen[l.path] = true
		// Packages that help tests, named …test or below internal/testenv, may use the modules of tests. The packages
		// that users import cannot depend on them without failing here.
		helpsTests := strings.HasSuffix(path, "test") || strings.HasPrefix(path, module+"/internal/testenv/")
		for _, dep := range p.Deps {
			if ours(dep) {
				require.True(t, l.mayUse(layerOf(dep).path), "%s (layer %s) depends on %s", path, l.path, dep)
			} else if m := packages[dep].Module; m != nil && !helpsTests {
				seen[m.Path] = true
				require.Contains(t, modules, m.Path, "%s needs %s; heavy dependencies live in nested modules", path, dep)
			}
		}
	}
	for _, l := range layers {
		require.True(t, seen[l.path], "no package in layer %s: the table is out of date", l.path)
	}
	for _, m := range modules {
		require.True(t, seen[m], "no package needs %s: the list is out of date", m)
	}
}

// TestNestedModulesAvoidInternal checks that nested modules import no internal package of the root module: these
// change without notice, and the modules may have different versions.
func TestNestedModulesAvoidInternal(t *testing.T) {
	nested, err := filepath.Glob("../../../*/*/go.mod")
	require.NoError(t, err)
	if len(nested) == 0 {
		t.Skip("the nested modules are not here, as in the module cache")
	}
	imports := regexp.MustCompile(`"` + module + `/internal/[^"]*"`)
	for _, mod := range nested {
		require.NoError(t, filepath.WalkDir(filepath.Dir(mod), func(file string, _ os.DirEntry, err error) error {
			ofTests := strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "test")
			if err != nil || !strings.HasSuffix(file, ".go") || ofTests {
				return err
			}
			text, err := os.ReadFile(file)
			require.Empty(t, string(imports.Find(text)), "%s is part of a nested module", file)
			return err
		}))
	}
}

// eachFile calls check with the text of each Go file and C file of this module, without tests.
func eachFile(t *testing.T, check func(p goPackage, name, text string)) {
	t.Helper()
	for path, p := range list(t) {
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.CFiles, p.HFiles) {
			if ours(path) {
				text, err := os.ReadFile(filepath.Join(p.Dir, name))
				require.NoError(t, err)
				check(p, path+"/"+name, string(text))
			}
		}
	}
}

var includes = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]`)

// foreign matches headers of other projects, which the build must not need.
var foreign = regexp.MustCompile(`(?i)python\.h|dpctl|sycl/|CL/|dlpack/dlpack\.h|level_zero|umf`)

func TestCIncludesPointDown(t *testing.T) {
	require.Regexp(t, foreign, includes.FindStringSubmatch("# include <Python.h>")[2])
	home := map[string]string{} // header -> layer
	for path, p := range list(t) {
		for _, h := range p.HFiles {
			if ours(path) {
				require.NotContains(t, home, h, "two headers of one name: the include path would decide between them")
				home[h] = layerOf(path).path
			}
		}
	}
	eachFile(t, func(p goPackage, name, text string) {
		for _, m := range includes.FindAllStringSubmatch(text, -1) {
			if to, isOurs := home[filepath.Base(m[2])]; isOurs && m[1] == `"` {
				require.True(t, layerOf(p.ImportPath).mayUse(to), "%s includes %s of layer %s", name, m[2], to)
			} else {
				require.NotRegexp(t, foreign, m[2], "%s includes a foreign header", name)
			}
		}
	})
}

// TestNoescapeImpliesNocallback: Go passes the address of a variable on the stack to a C function that is marked
// as noescape. If C calls Go, the stack may grow and move, and C keeps the old address.
func TestNoescapeImpliesNocallback(t *testing.T) {
	mark := regexp.MustCompile(`(?m)^#cgo (noescape|nocallback) (\w+)`)
	eachFile(t, func(_ goPackage, name, text string) {
		marks := map[string][]string{}
		for _, m := range mark.FindAllStringSubmatch(text, -1) {
			marks[m[1]] = append(marks[m[1]], m[2])
		}
		require.Subset(t, marks["nocallback"], marks["noescape"], name)
	})
}

// TestNoPanicIsAString checks that the value of a panic is an error. Internal packages may panic with
// a string.
func TestNoPanicIsAString(t *testing.T) {
	call := regexp.MustCompile("\\bpanic\\((\"|`|fmt\\.Sprint)")
	require.Regexp(t, call, `panic("closed")`)
	eachFile(t, func(p goPackage, name, text string) {
		if p.Name != "main" && !strings.Contains(name, "/internal/") && !strings.HasSuffix(p.ImportPath, "test") {
			require.NotRegexp(t, call, text, "%s: make the value an error", name)
		}
	})
}
