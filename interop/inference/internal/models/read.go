package models

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Source is the source of one model.
type Source struct {
	Name string
	File string // where it was read from, for tracebacks
	Text string
}

const (
	mostModels = 256
	mostBytes  = 4 << 20 // of one file
	maxEntries = 10000   // in the directory and below
)

// ErrRefused is returned for a file or directory that must not be run.
var ErrRefused = errors.New("refused")

// refuse returns an error with file and reason.
func refuse(file, format string, args ...any) error {
	return fmt.Errorf("models: %s is %w: %s", file, ErrRefused, fmt.Sprintf(format, args...))
}

// Read reads the models of a directory, NAME.py each, in the order of their names. A user who can
// write to them can run any code here. So the directory, its parents and the files must belong to
// this user or root and must not be writable by others, and files must be regular ones. Names that
// begin with a dot or an underscore, and names without the suffix .py, are ignored. Errors:
// ErrRefused with file and reason, and those of the system.
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
	if err := checkTree(real); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return nil, fmt.Errorf("models: %w", err)
	}
	var sources []Source
	for _, entry := range entries {
		name, isModel := strings.CutSuffix(entry.Name(), ".py")
		if !isModel || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
			continue
		}
		file := filepath.Join(real, entry.Name())
		if !isIdentifier(name) {
			return nil, refuse(file, "%q is not a name of a model: it must be a Python identifier", name)
		}
		if len(sources) == mostModels {
			return nil, refuse(real, "it has more than %d models", mostModels)
		}
		text, err := readFile(file)
		if err != nil {
			return nil, err
		}
		sources = append(sources, Source{name, file, text})
	}
	if len(sources) == 0 {
		return nil, refuse(real, "it has no model, which is a file NAME.py")
	}
	return sources, nil
}

// checkTree checks all files below a directory, because models import helper modules from it.
func checkTree(dir string) error {
	n := 0
	return filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("models: %w", err)
		}
		if n++; n > maxEntries {
			return refuse(dir, "it has more than %d files and directories", maxEntries)
		}
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("models: %w", err)
		}
		if info.Mode().Type() == os.ModeSymlink {
			return refuse(path, "it is a link; models and their helper modules must be regular files")
		}
		return checkOwner(path, info, false)
	})
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

// readFile checks and reads a file by its descriptor, so that the file cannot be replaced between
// the two.
func readFile(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return "", refuse(file, "it is a link; models must be regular files")
	}
	if err != nil {
		return "", fmt.Errorf("models: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("models: %w", err)
	}
	if !info.Mode().IsRegular() {
		return "", refuse(file, "it is not a regular file")
	}
	if err := checkOwner(file, info, false); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("models: %w", err)
	case len(text) > mostBytes:
		return "", refuse(file, "it is longer than %d bytes", mostBytes)
	case !utf8.Valid(text):
		return "", refuse(file, "it is not UTF-8")
	}
	return string(text), nil
}

// keywords of Python are not names.
var keywords = []string{"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
	"def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
	"nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield"}

// isIdentifier is stricter than Python's rule, because names are part of URLs.
func isIdentifier(s string) bool {
	for i, c := range s {
		if c > unicode.MaxASCII || c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != "" && len(s) <= 128 && !slices.Contains(keywords, s)
}
