package backend

import (
	"errors"
	"fmt"
	"sync"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// process holds the SYCL runtime and Python, which exist once per process. The first backend starts
// them, and later ones use them.
var process struct {
	mu sync.Mutex
	rt *syclobj.Runtime
	py *python.Interpreter
}

func openRuntime() (*syclobj.Runtime, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.rt == nil {
		rt, err := syclobj.Open()
		if err != nil {
			return nil, fmt.Errorf("backend: SYCL: %w", err)
		}
		process.rt = rt
	}
	return process.rt, nil
}

func startPython() (*python.Interpreter, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	// Memory that models allocate outside of calls is in the default pools.
	err := pymodule.Register(pymodule.SetRuntime(process.rt))
	if err == nil {
		process.py, err = python.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("backend: models need Python with usmbridge's packages (`make python` sets it up in .venv): %w", err)
	}
	return process.py, nil
}

// End ends Python and closes the SYCL runtime, after every backend is closed. It is the last call of
// a process.
func End() error {
	process.mu.Lock()
	defer process.mu.Unlock()
	var err error
	if process.py != nil {
		err = process.py.Close()
	}
	if process.rt != nil {
		err = errors.Join(err, memmgr.CloseDefaults(), process.rt.Close())
	}
	process.py, process.rt = nil, nil
	return err
}
