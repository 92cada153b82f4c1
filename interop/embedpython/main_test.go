package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is laid out runs, is the version that its name says, brings a shared
// library that a program can load, and a pip that the interpreter finds.
func TestExtractGivesAWorkingPython(t *testing.T) {
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
		t.Errorf("%s says that it is %s", first.Python, version)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(first.Python)), "lib", library)); err != nil {
		t.Errorf("the shared library of the interpreter: %v", err)
	}

	// Again on the same directory: the same places, and what was lost is back.
	lost := filepath.Join(filepath.Dir(filepath.Dir(first.Python)), "lib", "python"+version, "json", "decoder.py")
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	again, err := extract(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again != first {
		t.Errorf("the second time gave %+v, the first %+v", again, first)
	}
	if _, err := os.Stat(lost); err != nil {
		t.Errorf("what was missing was not repaired: %v", err)
	}
}
