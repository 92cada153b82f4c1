package elfcheck_test

import (
	"bytes"
	"debug/elf"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/elfcheck"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

func whole(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(sycltest.Library(t))
	require.NoError(t, err)
	return text
}

// A complete library is accepted, and every shorter one is refused.
func TestTruncated(t *testing.T) {
	text := whole(t)
	path := filepath.Join(t.TempDir(), "cut.so")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NoError(t, elfcheck.File(path))
	bad, err := elfcheck.Needed(path, filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, bad)
	for n := len(text) - 1; n >= 0; n -= 61 {
		require.NoError(t, os.Truncate(path, int64(n)))
		require.ErrorContains(t, elfcheck.File(path), "truncated", "%d bytes", n)
	}
}

// A segment beyond the end is found where the section headers are whole or absent.
func TestSegmentBeyondTheEnd(t *testing.T) {
	text := whole(t)
	// Without section headers, as a stripped library may be: their offset at byte
	// 40, their number at 60 and the index of their names at 62 of the header.
	clear(text[40:48])
	clear(text[60:64])
	path := filepath.Join(t.TempDir(), "stripped.so")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NoError(t, elfcheck.File(path))
	require.NoError(t, os.Truncate(path, 8192))
	require.ErrorContains(t, elfcheck.File(path), "program header")
	// The size in the file of the first segment, at byte 32 of its header.
	copy(text[64+32+3:], []byte{0xff, 0xff, 0xff, 0xff, 0x7f})
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.Error(t, elfcheck.File(path))
}

func TestNotRegular(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skipf("%s has other special files", runtime.GOOS)
	}
	dir := t.TempDir()
	require.ErrorContains(t, elfcheck.File(dir), "it is a directory, not a regular file")
	require.ErrorContains(t, elfcheck.File("/dev/null"), "it is a device, not a regular file")
	require.ErrorIs(t, elfcheck.File(filepath.Join(dir, "none")), fs.ErrNotExist)
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	defer socket.Close()
	require.ErrorContains(t, elfcheck.File(filepath.Join(dir, "socket")), "no such device") // the error of open for a socket
}

// FuzzFile: an accepted file has all its segments according to debug/elf too, and files that do not begin
// like ELF files are refused.
func FuzzFile(f *testing.F) {
	text := whole(f)
	f.Add(text[:512])
	f.Add(append(text[:4096:4096], text[len(text)-4096:]...))
	path := filepath.Join(f.TempDir(), "any.so") // one for all: a directory each is most of the time
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		if elfcheck.File(path) != nil {
			return
		}
		require.True(t, bytes.HasPrefix(text, []byte(elf.ELFMAG)))
		e, err := elf.NewFile(bytes.NewReader(text))
		require.NoError(t, err)
		for _, p := range e.Progs {
			if p.Type == elf.PT_LOAD {
				require.LessOrEqual(t, p.Off, uint64(len(text)))
				require.LessOrEqual(t, p.Filesz, uint64(len(text))-p.Off)
			}
		}
		_, _ = elfcheck.Needed(path, filepath.Dir(path))
	})
}
