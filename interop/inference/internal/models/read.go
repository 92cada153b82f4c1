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

// Source is one model's.
type Source struct {
	Name string
	File string // where it was read from, for tracebacks
	Text string
}

const (
	mostModels = 256
	mostBytes  = 4 << 20 // of one file
)

// ErrRefused is the kind of a refusal: a file, or the directory, is not what may be run.
var ErrRefused = errors.New("refused")

// refuse names file and reason.
func refuse(file, format string, args ...any) error {
	return fmt.Errorf("models: %s is %w: %s", file, ErrRefused, fmt.Sprintf(format, args...))
}

// Read reads the models of a directory, NAME.py each, by name. Whoever may write to them may
// run anything here: so the directory, those above it and the files must belong to this
// user or root and must not be writable by others, and files must be regular ones. Names that
// begin with a dot or an underscore, and what does not end in .py, are passed over. Errors:
// ErrRefused with file and reason, and the system's.
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
			return nil, refuse(file, "%q is no name for a model: it must be a Python identifier", name)
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
		return nil, refuse(real, "it has no model: a file NAME.py")
	}
	return sources, nil
}

// checkDirectories looks at a directory and all above it: whoever may write to one of them can
// put another in its place. Where it is sticky, as /tmp is, only the owner can.
func checkDirectories(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil {
			return fmt.Errorf("models: %w", err)
		}
		if !info.IsDir() {
			return refuse(at, "it is no directory")
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
		return refuse(file, "others may write to it (mode %#o); take that away with chmod go-w", info.Mode().Perm())
	}
	return nil
}

// readFile reads what it has looked at: the descriptor, not the name, is checked.
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
		return "", refuse(file, "it is no regular file")
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

// keywords of Python are no names.
var keywords = []string{"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
	"def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
	"nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield"}

// isIdentifier is stricter than Python's own rule: names go into paths of URLs.
func isIdentifier(s string) bool {
	for i, c := range s {
		if c > unicode.MaxASCII || c != '_' && !unicode.IsLetter(c) && (i == 0 || !unicode.IsDigit(c)) {
			return false
		}
	}
	return s != "" && len(s) <= 128 && !slices.Contains(keywords, s)
}
