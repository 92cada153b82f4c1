package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExtract checks that the interpreter runs, has the version of its name, has a shared library, and finds pip,
// and that extract restores a missing file.
func TestExtract(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", os.TempDir()) // extract changes it
	first, err := extract(dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(first.Python, "-c",
		"import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_config_var('LDLIBRARY'))\nimport pip, ssl, sqlite3, ctypes")
	cmd.Env = []string{"PYTHONPATH=" + first.Pip}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", first.Python, err, out)
	}
	version, library, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if filepath.Base(first.Python) != "python"+version {
		t.Errorf("%s has version %s", first.Python, version)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(first.Python)), "lib", library)); err != nil {
		t.Errorf("the shared library of the interpreter: %v", err)
	}

	// The second run returns the same paths and restores the file.
	lost := filepath.Join(filepath.Dir(filepath.Dir(first.Python)), "lib", "python"+version, "json", "decoder.py")
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	again, err := extract(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again != first {
		t.Errorf("second extract: got %+v, want %+v", again, first)
	}
	if _, err := os.Stat(lost); err != nil {
		t.Errorf("the missing file was not restored: %v", err)
	}
}
