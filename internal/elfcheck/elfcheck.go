// Package elfcheck checks files before they are passed to dlopen. dlopen maps the sizes in the
// headers of a file. If a full disk or a broken download truncated the library, the process ends
// with SIGBUS. Opening a named pipe blocks forever.
//
// Packages of this module that load libraries with names from the user call it.
package elfcheck

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// File returns an error if the file must not be passed to dlopen: it cannot be opened (the
// error then wraps that of the system, such as fs.ErrNotExist), is not a regular file or not an
// ELF file, is for another machine, or is shorter than its headers state. Without an error
// dlopen can map the file, but may still refuse it. The text is a sentence without the path,
// such as "it is a named pipe, not a regular file".
func File(path string) error {
	_, err := check(path)
	return err
}

// Needed calls File for each library in dir that the file at path needs, directly or through
// other libraries. It returns the path of the first bad one with the error, or an empty path
// and nil. The caller has checked the file itself.
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

// check is File, and returns the names of the libraries that the file needs.
func check(path string) (needed []string, err error) {
	// Without O_NONBLOCK a pipe would wait for a writer.
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
		return nil, fmt.Errorf("of its %d bytes the ELF headers cannot be read: it is truncated or no shared library (%w)", info.Size(), err)
	}
	if own := program(); own != nil && (lib.Class != own.Class || lib.Data != own.Data || lib.Machine != own.Machine) {
		return nil, fmt.Errorf("it is for %v (%v, %v), and this program for %v (%v, %v)", lib.Machine, lib.Class, lib.Data, own.Machine, own.Class, own.Data)
	}
	for i, p := range lib.Progs {
		if size := uint64(info.Size()); p.Type == elf.PT_LOAD && (p.Filesz > size || p.Off > size-p.Filesz) {
			return nil, fmt.Errorf("it is truncated: its program header %d names %d bytes from byte %d, and the file has %d", i, p.Filesz, p.Off, size)
		}
	}
	needed, err = lib.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("the names of the libraries it needs cannot be read: %w", err)
	}
	return needed, nil
}

// program returns the ELF header of the running program, nil if it cannot be read. Then only
// dlopen checks the machine.
var program = sync.OnceValue(func() *elf.FileHeader {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return nil
	}
	defer f.Close()
	return &f.FileHeader
})

// reason returns the error of the operating system without the path.
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
