package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed requirements-run.txt
var requirementsRun []byte

//go:embed requirements-test.txt
var requirementsTest []byte

// packageSet is one requirements file with the files that it includes.
type packageSet struct {
	name  string            // "run" or "test"
	file  string            // the file to give to pip
	files map[string][]byte // that one and what it includes
	hash  string            // of all of them, the key of the stamp
}

// requirements returns the set of that name.
func requirements(name string) (packageSet, error) {
	s := packageSet{name: name, file: "requirements-" + name + ".txt"}
	switch name {
	case "run":
		s.files = map[string][]byte{s.file: requirementsRun}
	case "test":
		s.files = map[string][]byte{"requirements-run.txt": requirementsRun, s.file: requirementsTest}
	default:
		return s, fmt.Errorf("no set of packages %q: it is run or test", name)
	}
	h := sha256.New()
	for _, f := range []string{"requirements-run.txt", "requirements-test.txt"} {
		h.Write(s.files[f])
	}
	s.hash = hex.EncodeToString(h.Sum(nil))
	return s, nil
}

// includes tells whether having this set means having the other: test
// contains run.
func (s packageSet) includes(other string) bool {
	return s.name == other || s.name == "test" && other == "run"
}

// write puts the files into a directory and returns the path for pip.
func (s packageSet) write(dir string) (string, error) {
	for name, text := range s.files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return "", fmt.Errorf("writing the list of packages: %w", err)
		}
	}
	return filepath.Join(dir, s.file), nil
}
