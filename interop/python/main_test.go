package python_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

// embedEnv names the interpreter that a child process of this test embeds. A process can
// embed only one Python.
const embedEnv = "USMBRIDGE_TEST_EMBED"

// morePythonsEnv lists further interpreters to test with, in the format of PATH.
const morePythonsEnv = "USMBRIDGE_TEST_PYTHONS"

// pythons returns the usable interpreters: the one that Find returns, that of the
// repository's .venv, and one of each minor version from PATH or pyenv.
func pythons(t *testing.T) []*python.Environment {
	t.Helper()
	var list []*python.Environment
	minors := map[int]bool{}
	add := func(env *python.Environment, always bool) {
		for _, e := range list {
			if e.Prefix == env.Prefix {
				return
			}
		}
		if always || !minors[env.Version.Minor] {
			minors[env.Version.Minor] = true
			list = append(list, env)
		}
	}
	env, tried := python.Attempts()
	if env != nil {
		add(env, true)
	}
	for _, a := range tried {
		t.Logf("found from %s: %s: %v", a.Source, a.Executable, a.Err)
	}
	try := func(path string, always bool) {
		if env, err := python.Inspect(path); err == nil {
			add(env, always)
		} else {
			t.Logf("passed over: %v", err)
		}
	}
	if _, err := os.Stat("../../.venv/bin/python"); err == nil {
		venv := testenv.Must(filepath.Abs("../../.venv"))(t)
		try(venv, true)
	}
	for _, path := range otherPythons() {
		try(path, false)
	}
	return list
}

func otherPythons() []string {
	paths := filepath.SplitList(os.Getenv(morePythonsEnv))
	for minor := 11; minor <= 16; minor++ {
		if p, err := exec.LookPath(fmt.Sprintf("python3.%d", minor)); err == nil {
			paths = append(paths, p)
		}
	}
	home, _ := os.UserHomeDir()
	root := os.Getenv("PYENV_ROOT")
	if root == "" {
		root = filepath.Join(home, ".pyenv")
	}
	more, _ := filepath.Glob(filepath.Join(root, "versions", "3.1*", "bin", "python3"))
	slices.Sort(more)
	return append(paths, more...)
}
