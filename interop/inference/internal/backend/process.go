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

// process is what a process has one of: the SYCL runtime and Python. They are started by the
// first backend, and stay for the next one.
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
	if process.py != nil {
		return process.py, nil
	}
	// What models make outside of calls, and keep, is of the default pools.
	if err := pymodule.Register(pymodule.SetRuntime(process.rt)); err != nil {
		return nil, err
	}
	py, err := python.Start()
	if err != nil {
		return nil, fmt.Errorf("backend: models need Python with usmbridge's packages (`make python` sets it up in .venv): %w", err)
	}
	process.py = py
	return py, nil
}

// End ends Python and closes the SYCL runtime, when every backend is closed: a process calls
// it last.
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
