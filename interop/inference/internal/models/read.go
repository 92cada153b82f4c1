// Package models reads the files of models. Read reads the sources of a directory that other users cannot
// write to, Bootstrap is the Python module that loads and calls them, Job is a model for this module, and Definition
// converts the description that it returns. The package runs no Python.
package models

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Source is the source of one model.
type Source struct {
	Name string
	File string // where it was read from, for tracebacks
	Text string
	// Problem is the reason why the file cannot be a model, for clients; "" if it can.
	Problem string
}

// refuse returns the error for a file or directory that must not be run.
func refuse(file, format string, args ...any) error {
	return fmt.Errorf("models: %s is refused: %s", file, fmt.Sprintf(format, args...))
}

// Read reads the models of a directory, NAME.py each, in the order of their names. A user who can
// write to them can run any code here. So the directory, its parents and the files must belong to
// this user or root and must not be writable by others, and there are no links. Names that begin with a dot or
// an underscore, and names without the suffix .py, are ignored. Another file that cannot be a model is a
// source with a Problem. Errors: refused files, and those of the system.
func Read(dir string) ([]Source, error) {
	real, err := filepath.Abs(dir)
	if err == nil {
		real, err = filepath.EvalSymlinks(real)
	}
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	if err := checkDirectories(real); err != nil {
		return nil, err
	}
	var sources []Source
	// Check all files below the directory, because models import helper modules from it.
	err = filepath.WalkDir(real, func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("models: %w", err)
		}
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("models: %w", err)
		}
		if info.Mode().Type() == os.ModeSymlink {
			return refuse(file, "it is a link; models and their helper modules must be regular files")
		}
		if err := checkOwner(file, info, false); err != nil {
			return err
		}
		name, isModel := strings.CutSuffix(entry.Name(), ".py")
		if !isModel || filepath.Dir(file) != real || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			return nil
		}
		sources = append(sources, read(name, file, info))
		return nil
	})
	if err == nil && len(sources) == 0 {
		err = refuse(real, "it has no model, which is a file NAME.py")
	}
	if err != nil {
		return nil, err
	}
	return sources, nil
}

// read reads the file of a model.
func read(name, file string, info os.FileInfo) Source {
	s := Source{Name: name, File: file}
	switch {
	case !validName.MatchString(name):
		s.Name = strings.Trim(strconv.QuoteToASCII(name), `"`)
		s.Problem = "its name is not valid: want 1 to 128 ASCII letters, digits, and _ - or . after the first of them"
	case !info.Mode().IsRegular():
		s.Problem = "it is not a regular file"
	default:
		text, err := os.ReadFile(file)
		switch {
		case err != nil:
			s.Problem = "its file cannot be read"
		case !utf8.Valid(text):
			s.Problem = "its file is not UTF-8"
		default:
			s.Text = string(text)
		}
	}
	return s
}

// checkDirectories checks a directory and its parents: a user who can write to one of them can
// replace the models. In a sticky directory, such as /tmp, only the owner can.
func checkDirectories(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return fmt.Errorf("models: %w", err)
		}
		if !info.IsDir() {
			return refuse(at, "it is not a directory")
		}
		if err := checkOwner(at, info, at != dir && info.Mode()&os.ModeSticky != 0); err != nil {
			return err
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

func checkOwner(file string, info os.FileInfo, sticky bool) error {
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return refuse(file, "it belongs to user %d; models must belong to the user of the service or to root", s.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 && !sticky {
		return refuse(file, "others can write to it (mode %#o); run chmod go-w", info.Mode().Perm())
	}
	return nil
}

// validName matches names that can be a part of a URL.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)
