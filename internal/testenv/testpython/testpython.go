// Package testpython finds the Python that tests embed or start. Only tests import it.
package testpython

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/python"
)

// Need returns a Python that has the modules: the active one, or the one of `make python`. Without one the
// test ends as [testenv.Missing] describes.
func Need(t testing.TB, modules ...string) *python.Environment {
	t.Helper()
	env, err := Find(modules...)
	if err != nil {
		testenv.Missing(t, err, testenv.Python, testenv.Peers)
	}
	return env
}

var found sync.Map // the modules to a result

type result struct {
	env *python.Environment
	err error
}

// Find returns a Python that has the modules, or the reason why there is none. It searches once.
func Find(modules ...string) (*python.Environment, error) {
	names := strings.Join(append(modules, "sys"), ", ")
	r, ok := found.Load(names)
	if !ok {
		env, err := search(names)
		r, _ = found.LoadOrStore(names, result{env, err})
	}
	return r.(result).env, r.(result).err
}

func search(names string) (*python.Environment, error) {
	var candidates []string
	if env, err := python.Find(); err == nil {
		candidates = append(candidates, env.Executable)
	}
	candidates = append(candidates, filepath.Join(testenv.Root(), ".venv", "bin", "python"))
	var errs []error
	for _, exe := range candidates {
		env, err := python.Inspect(exe)
		if err == nil {
			var text []byte
			if text, err = exec.Command(env.Executable, "-c", "import "+names).CombinedOutput(); err == nil {
				return env, nil
			}
			err = fmt.Errorf("%s: %w: %s", env.Executable, err, strings.TrimSpace(string(text)))
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no Python with %s: %w", names, errors.Join(errs...))
}
