package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/internal/operr"
)

// Create creates or replaces the file at path with the contents that fill writes. If it fails, it removes
// the new file.
//
// It writes a temporary file in the same directory, syncs it to disk, gives it the permissions of the
// existing file, and renames it to path. Readers of path see either the old or the new file, also after
// a crash. If inPlace is set, it writes to path itself, as os.Create does, without a sync.
//
// If path is a symbolic link, the link is kept and its target is written; the target need not exist.
// Directories and special files are refused.
func Create(ctx context.Context, path string, inPlace bool, fill func(*os.File) error) error {
	path = final(path)
	info, err := os.Stat(path)
	switch {
	case err == nil:
		if err := regular(info); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := operr.Ended(ctx); err != nil {
		return err
	}
	if inPlace {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|nonblock, 0o666)
		if err != nil {
			return err
		}
		return finish(f, path, fill, func() error { return f.Close() })
	}
	permissions := fs.FileMode(0o666)
	if info != nil { // users without access to the old file must not read the new one
		permissions = info.Mode().Perm()&0o600 | 0o200
	}
	f, err := temporary(path, permissions)
	if err != nil {
		return err
	}
	return finish(f, f.Name(), fill, func() error {
		if info != nil {
			if err := f.Chmod(info.Mode().Perm()); err != nil {
				return err
			}
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if err := operr.Ended(ctx); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), path); err != nil {
			return err
		}
		syncDirectory(filepath.Dir(path))
		return nil
	})
}

// finish fills a file and commits it. If that fails or panics, it removes the file.
func finish(f *os.File, name string, fill func(*os.File) error, commit func() error) error {
	done := false
	defer func() {
		if !done { // also if fill panics
			f.Close()
			_ = os.Remove(name)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := regular(info); err != nil {
		done = true // not created by this call: keep it
		f.Close()
		return err
	}
	if err := fill(f); err != nil {
		return err
	}
	if err := commit(); err != nil {
		return err
	}
	done = true
	return nil
}

// maxLinks is the maximum number of symbolic links in a path, as on Linux.
const maxLinks = 40

// final follows the symbolic links of path and returns the name of the target, which need not exist. For
// links that cannot be resolved it returns path, so that opening it reports the error.
func final(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return path
		}
		return real
	}
	name := path
	for range maxLinks {
		dir, base := filepath.Split(name)
		if dir == "" {
			dir = "."
		}
		dir, err := filepath.EvalSymlinks(dir) // so that ".." in the link is relative to the real directory
		if err != nil {
			return path
		}
		name = filepath.Join(dir, base)
		info, err := os.Lstat(name)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return name
		}
		if name, err = os.Readlink(name); err != nil {
			return path
		}
		if !filepath.IsAbs(name) {
			name = dir + string(filepath.Separator) + name
		}
	}
	return path
}

// temporary creates a file with an unused random name in the directory of path.
func temporary(path string, permissions fs.FileMode) (*os.File, error) {
	dir, base := filepath.Split(path)
	if len(base) > 200 { // file names have at most 255 bytes
		base = base[:200]
	}
	for range 100 {
		name := dir + "." + base + "." + strings.ToLower(rand.Text()[:12]) + ".tmp"
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, permissions)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("no unused name for a temporary file in the directory of %s: %w", path, fs.ErrExist)
}

// syncDirectory syncs the new name to disk. Errors are ignored: some systems cannot sync directories, and
// the file has its name already.
func syncDirectory(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	_ = d.Sync()
	d.Close()
}
