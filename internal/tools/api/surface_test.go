package main

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// most is the maximum number of functions, methods and types that the common packages together may
// export, because new users must read them. mostOfOne is the maximum for each other package.
const (
	most      = 650
	mostOfOne = 45
)

// common lists the packages that most programs with arrays use, by their paths in the module.
var common = []string{
	"dlpack", "dlpack/cute", "interop/pymodule", "interop/python", "memmgr", "syclobj",
	"usmarray",
}

func TestSurfaceIsListed(t *testing.T) {
	s, err := read(".")
	require.NoError(t, err)
	listed, err := os.ReadFile("surface.txt")
	require.NoError(t, err)
	require.Equal(t, string(listed), s.text(), "the public surface changed: if this is intended, update the list "+
		"(go run ./internal/tools/api > internal/tools/api/surface.txt) and the changelog")
	total := 0
	for dir, names := range s {
		if slices.Contains(common, dir) {
			total += len(names)
			continue
		}
		require.LessOrEqual(t, len(names), mostOfOne, "%s: unexport names that users do not need", dir)
	}
	require.LessOrEqual(t, total, most, "unexport names that users do not need")
}

func TestDeclarationsOfAFile(t *testing.T) {
	file := t.TempDir() + "/a.go"
	require.NoError(t, os.WriteFile(file, []byte(`package a
type T[K any] struct{}
func (t *T[K]) Method(p unsafe.Pointer) (int, error) { return 0, nil }
func (t *T[K]) hidden() {}
type hidden struct{}
func (hidden) Method() {}
type Face interface { Ask(n int) bool; other(); error }
func Make() (x,
	y int) { return }
const C, V = 1, 2
type Name = string
`), 0o600))
	lines, err := declarations(file)
	require.NoError(t, err)
	require.Equal(t, []string{
		"type T struct",
		"func (t *T[K]) Method(p unsafe.Pointer) (int, error)",
		"type Face interface",
		"func (Face) Ask(n int) bool",
		"func Make() (x, y int)",
		"type Name string",
	}, lines)
	s := surface{"a": lines}
	require.Equal(t, 1, s.addresses("a"))
}
