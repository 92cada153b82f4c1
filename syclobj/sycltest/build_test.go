//go:build linux && cgo

package sycltest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBuildErrors: a missing compiler is a reason to skip; a library that does not compile is not.
func TestBuildErrors(t *testing.T) {
	build := func(cc, text string) error {
		t.Setenv("CC", cc)
		dir := t.TempDir()
		path := filepath.Join(dir, "fake.so")
		err := compile(dir, path, map[string][]byte{"a.c": []byte(text)})
		if err == nil {
			_, err := os.Stat(path)
			require.NoError(t, err)
		}
		return err
	}
	require.NoError(t, build("", "int a;"))
	require.NoError(t, build("cc -g0", "int a;"))
	err := build("", "not C")
	require.ErrorContains(t, err, "a.c:1")
	require.False(t, noCompiler(err))
	err = build("no-such-compiler", "int a;")
	require.True(t, noCompiler(err))
	require.ErrorContains(t, err, "no-such-compiler")
}
