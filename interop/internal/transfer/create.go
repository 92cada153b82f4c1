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
)

// Create writes a file through fill, and leaves none where that fails.
//
// The file is a temporary one beside path, which takes its place, and the permissions of
// what stood there, when all of it is on the disk: whoever opens path sees the old or the
// new one, also after a crash. With inPlace it is path itself, as os.Create makes it, without
// waiting for the disk.
//
// A symbolic link stays one: what it names is written, also where that is not there yet.
// What is no regular file is refused.
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
	if err := ctx.Err(); err != nil {
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
	if info != nil { // nobody may read the new content who may not read the old one
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
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), path); err != nil {
			return err
		}
		syncDirectory(filepath.Dir(path))
		return nil
	})
}

// finish fills a file and commits it, or removes it.
func finish(f *os.File, name string, fill func(*os.File) error, commit func() error) error {
	done := false
	defer func() {
		if !done { // also when a writer panics
			f.Close()
			_ = os.Remove(name)
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := regular(info); err != nil {
		done = true // not ours
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

// maxLinks is how many symbolic links one name may lead through, as Linux has it.
const maxLinks = 40

// final is the name that path leads to through symbolic links, be there a file of that name
// or not. Links that end nowhere are left to the system to refuse.
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
		dir, err := filepath.EvalSymlinks(dir) // so that ".." begins from where it is
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

// temporary makes a file beside path; it cannot be taken for the result of another writer,
// nor be one.
func temporary(path string, permissions fs.FileMode) (*os.File, error) {
	dir, base := filepath.Split(path)
	if len(base) > 200 { // names have 255 bytes at most
		base = base[:200]
	}
	for range 100 {
		name := dir + "." + base + "." + strings.ToLower(rand.Text()[:12]) + ".tmp"
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, permissions)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("no free name for a temporary file beside %s: %w", path, fs.ErrExist)
}

// syncDirectory brings the new name to the disk. Some systems cannot, and the file is in
// place whatever they say.
func syncDirectory(dir string) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	_ = d.Sync()
	d.Close()
}
