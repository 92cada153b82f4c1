package syclobj_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestIncompleteLibraryFiles checks that files which would crash or block dlopen are errors with the
// reason, for every way to name the file.
func TestIncompleteLibraryFiles(t *testing.T) {
	whole := testenv.Must(os.ReadFile(sycltest.Library(t)))(t)
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name, "libDPCTLSyclInterface.so")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	// The machine is the half word at byte 18 of an ELF file's header.
	foreign := slices.Clone(whole)
	binary.NativeEndian.PutUint16(foreign[18:], 243)
	pipe := filepath.Join(dir, "pipe", "libDPCTLSyclInterface.so")
	require.NoError(t, os.MkdirAll(filepath.Dir(pipe), 0o755))
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	nested := filepath.Join(dir, "nested", "libDPCTLSyclInterface.so")
	require.NoError(t, os.MkdirAll(nested, 0o755))
	for _, c := range []struct{ path, want string }{
		{pipe, "a named pipe, not a regular file"},
		{filepath.Dir(nested), "a directory, not a regular file"},
		{"/dev/zero", "a device, not a regular file"},
		{write("empty", nil), "of its 0 bytes the ELF headers cannot be read"},
		{write("text", []byte("no library")), "of its 10 bytes the ELF headers cannot be read"},
		{write("header", whole[:64]), "of its 64 bytes the ELF headers cannot be read"},
		{write("half", whole[:len(whole)/2]), "truncated"},
		{write("foreign", foreign), "it is for EM_RISCV"},
	} {
		for _, how := range []string{envOption, syclobj.EnvLibrary} {
			o := openIn(t, how+"="+c.path)
			require.True(t, o.NoSYCL, "%s: %s", c.path, o.Error)
			require.Contains(t, o.Error, c.path)
			require.Contains(t, o.Error, c.want)
			require.Contains(t, o.Error, "name another file in USMBRIDGE_SYCL")
		}
		if c.path == "/dev/zero" {
			continue
		}
		// The search of the loader skips such a file. The error lists it.
		o := openIn(t, "LD_LIBRARY_PATH="+filepath.Dir(c.path))
		require.True(t, o.NoSYCL, "%s: %s", c.path, o.Error)
		require.Len(t, o.Attempts, 3)
	}
	t.Run("any length", func(t *testing.T) {
		for _, n := range lengths(len(whole), 24) {
			o := openIn(t, syclobj.EnvLibrary+"="+write("cut", whole[:n]))
			require.Contains(t, o.Error, "truncated", "%d of %d bytes", n, len(whole))
		}
	})
	t.Run("a dependency of the library", func(t *testing.T) {
		root := t.TempDir()
		lib := filepath.Join(root, "lib")
		thin := filepath.Join(filepath.Dir(install(t, root, "")), "libDPCTLSyclInterface.so")
		far := compile(t, "libfar.so", "char far[100000] = {1};", "-Wl,-soname,libfar.so", "-Wl,--no-as-needed", sycltest.Library(t))
		copyFile(t, far, filepath.Join(lib, "libfar.so"))
		near := compile(t, "libnear.so", "int near;", "-Wl,-soname,libnear.so", "-Wl,--no-as-needed", "-L"+lib, "-lfar")
		copyFile(t, near, filepath.Join(lib, "libnear.so"))
		copyFile(t, compile(t, "libDPCTLSyclInterface.so", "int thin;", "-Wl,-rpath,"+lib, "-Wl,--no-as-needed", "-L"+lib, "-lnear", "-Wl,--allow-shlib-undefined"), thin)
		require.NoError(t, os.Truncate(filepath.Join(lib, "libfar.so"), 20000))
		o := openIn(t, "VIRTUAL_ENV="+root)
		require.Contains(t, o.Error, thin+": it needs "+filepath.Join(lib, "libfar.so"))
		require.Contains(t, o.Error, "truncated")
	})
}

// lengths returns about n lengths below the length of a file, including the smallest and largest.
func lengths(of, n int) []int {
	list := []int{1, 4, 16, 63, 64, 65, 4095, 4096, 4097, of - 1}
	for i := of / n; i < of; i += of / n {
		list = append(list, i)
	}
	return list
}
