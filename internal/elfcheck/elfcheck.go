// Package elfcheck reports whether a file can safely be given to dlopen. dlopen maps the segments that the
// headers describe, so that a library truncated by a full disk or an incomplete download ends the process
// with SIGBUS; and opening a named pipe blocks forever.
//
// It serves the packages of this module that load libraries whose names users give.
package elfcheck

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// File returns the reason why the file must not be given to dlopen: it cannot be opened (the error then
// matches fs.ErrNotExist and similar), is not a regular file, is not an ELF file, is for another machine,
// or is shorter than its headers require. nil means that dlopen can map it, but not that it succeeds. The
// text is a sentence without the path, such as "it is a named pipe, not a regular file".
func File(path string) error {
	_, err := check(path)
	return err
}

// Needed applies File to the direct and indirect dependencies of the file at path that are in dir. It
// returns the path of the first invalid one and the reason, or an empty path and nil. The file itself must
// have passed File.
func Needed(path, dir string) (string, error) {
	seen := map[string]bool{}
	next := []string{path}
	for len(next) > 0 {
		file := next[0]
		next = next[1:]
		names, err := check(file)
		if err != nil {
			return file, err
		}
		for _, name := range names {
			near := filepath.Join(dir, filepath.Base(name))
			if _, err := os.Stat(near); err == nil && !seen[near] {
				seen[near] = true
				next = append(next, near)
			}
		}
	}
	return "", nil
}

// check returns the names of the file's dependencies.
func check(path string) (needed []string, err error) {
	// Without O_NONBLOCK, opening a pipe would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is %s, not a regular file", kindOf(info.Mode()))
	}
	lib, err := elf.NewFile(f)
	if err != nil {
		return nil, fmt.Errorf("of its %d bytes the ELF headers cannot be read: it is truncated or not a shared library (%w)", info.Size(), err)
	}
	if own := program(); own != nil && (lib.Class != own.Class || lib.Data != own.Data || lib.Machine != own.Machine) {
		return nil, fmt.Errorf("it is for %v (%v, %v), but this program is for %v (%v, %v)", lib.Machine, lib.Class, lib.Data, own.Machine, own.Class, own.Data)
	}
	for i, p := range lib.Progs {
		if size := uint64(info.Size()); p.Type == elf.PT_LOAD && (p.Filesz > size || p.Off > size-p.Filesz) {
			return nil, fmt.Errorf("it is truncated: its program header %d covers %d bytes from byte %d, but the file has %d", i, p.Filesz, p.Off, size)
		}
	}
	needed, err = lib.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("the names of the libraries it needs cannot be read: %w", err)
	}
	return needed, nil
}

// program returns the ELF header of the running program; nil if it cannot be read, so that only dlopen
// checks the machine.
func program() *elf.FileHeader {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return nil
	}
	defer f.Close()
	return &f.FileHeader
}

// reason returns the operating system's error without the path.
func reason(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}
