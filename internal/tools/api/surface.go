package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

const module = "github.com/usmbridge/usmbridge"

// surface maps the path of each package below the module to its declarations.
type surface map[string][]string

// read lists the public packages of the module that dir lies in.
func read(dir string) (surface, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles,CgoFiles", module+"/...")
	cmd.Env = append(os.Environ(), "GOWORK=off") // this module without the nested ones
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	s := surface{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Name, Dir string
			GoFiles, CgoFiles     []string
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, err
		}
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if p.Name == "main" || strings.HasSuffix(p.Name, "test") || strings.Contains("/"+path+"/", "/internal/") {
			continue
		}
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			lines, err := declarations(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			s[path] = append(s[path], lines...)
		}
		sort.Strings(s[path])
	}
}

// declarations returns the exported functions, methods and types of a file, the
// functions with their signatures.
func declarations(file string) ([]string, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if line, ok := function(set, d); ok {
				lines = append(lines, line)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok && t.Name.IsExported() {
					lines = append(lines, "type "+t.Name.Name+" "+kind(t))
					lines = append(lines, demands(set, t)...)
				}
			}
		}
	}
	return lines, nil
}

func function(set *token.FileSet, d *ast.FuncDecl) (string, bool) {
	// Functions that C calls are exported to the linker only.
	if !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d)) {
		return "", false
	}
	var b strings.Builder
	bare := *d
	bare.Body, bare.Doc = nil, nil
	if err := printer.Fprint(&b, set, &bare); err != nil {
		return "", false
	}
	return strings.Join(strings.Fields(b.String()), " "), true
}

// receiver returns the name of the type of a method.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// demands returns the exported methods of an interface.
func demands(set *token.FileSet, t *ast.TypeSpec) []string {
	face, ok := t.Type.(*ast.InterfaceType)
	if !ok {
		return nil
	}
	var lines []string
	for _, m := range face.Methods.List {
		f, ok := m.Type.(*ast.FuncType)
		if !ok || len(m.Names) != 1 || !m.Names[0].IsExported() {
			continue
		}
		var b strings.Builder
		if err := printer.Fprint(&b, set, f); err == nil {
			signature := strings.TrimPrefix(strings.Join(strings.Fields(b.String()), " "), "func")
			lines = append(lines, "func ("+t.Name.Name+") "+m.Names[0].Name+signature)
		}
	}
	return lines
}

// kind returns a word for the underlying type.
func kind(t *ast.TypeSpec) string {
	switch x := t.Type.(type) {
	case *ast.StructType:
		return "struct"
	case *ast.InterfaceType:
		return "interface"
	case *ast.FuncType:
		return "func"
	case *ast.Ident:
		return x.Name
	}
	return "of others"
}

// text returns the list, with a heading for each package.
func (s surface) text() string {
	var b strings.Builder
	paths := make([]string, 0, len(s))
	for p := range s {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, p := range paths {
		if len(s[p]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "# %s\n", p)
		for _, line := range s[p] {
			b.WriteString(line + "\n")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// addresses counts the declarations of a package with uintptr or unsafe.Pointer.
func (s surface) addresses(path string) int {
	n := 0
	for _, line := range s[path] {
		if strings.Contains(line, "uintptr") || strings.Contains(line, "unsafe.Pointer") {
			n++
		}
	}
	return n
}
