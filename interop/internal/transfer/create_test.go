package transfer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestReplacedFileStaysPrivate checks that only the owner can read the temporary file, and that the new file
// has the permissions of the old one.
func TestReplacedFileStaysPrivate(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs Unix permissions")
	}
	for _, mode := range []fs.FileMode{0o600, 0o640, 0o400, 0o755} {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		require.NoError(t, os.Chmod(path, mode))
		err := Create(context.Background(), path, false, func(f *os.File) error {
			info := testenv.Must(os.Stat(f.Name()))(t)
			require.NotEqual(t, path, f.Name())
			require.Zero(t, info.Mode().Perm()&0o077&^mode, "of %v, while the file is %v", mode, info.Mode())
			require.Zero(t, info.Mode().Perm()&0o077)
			_, err := f.WriteString("new")
			return err
		})
		require.NoError(t, err)
		info := testenv.Must(os.Stat(path))(t)
		require.Equal(t, mode, info.Mode().Perm())
	}
}

// TestLinksToNothingYet checks that Create keeps a symbolic link without a target and creates the target. If it
// fails, it keeps the link and leaves no file.
func TestLinksToNothingYet(t *testing.T) {
	for _, inPlace := range []bool{false, true} {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "real", "deep"), 0o755))
		for _, l := range [][2]string{
			{"target", "link"}, {"link", "twice"}, {"real/deep", "there"},
			{"there/../up", "upwards"}, {"loop2", "loop1"}, {"loop1", "loop2"},
		} {
			if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
				t.Skipf("symbolic links are not supported: %v", err)
			}
		}
		broken := errors.New("broken")
		for link, target := range map[string]string{"link": "target", "twice": "target", "upwards": "real/up"} {
			path, target := filepath.Join(dir, link), filepath.Join(dir, target)
			stays := func() {
				info, err := os.Lstat(path)
				require.NoError(t, err, link)
				require.NotZero(t, info.Mode()&fs.ModeSymlink, link)
			}
			require.ErrorIs(t, Create(context.Background(), path, inPlace, func(*os.File) error { return broken }), broken)
			stays()
			require.ErrorIs(t, testenv.ErrorOf(os.Lstat(target)), fs.ErrNotExist, link)
			require.NoError(t, Create(context.Background(), path, inPlace, func(f *os.File) error {
				_, err := f.WriteString(link)
				return err
			}))
			stays()
			got, err := os.ReadFile(target)
			require.NoError(t, err, link)
			require.Equal(t, link, string(got))
			require.NoError(t, os.Remove(target))
		}
		require.Error(t, Create(context.Background(), filepath.Join(dir, "loop1"), inPlace, func(*os.File) error { return nil }))
	}
}
