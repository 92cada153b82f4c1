package workers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Module is the source of a Python module that is part of the Go program.
type Module = executor.Module

// Config is the configuration of a Pool. The zero value is one worker with the Python of
// python.Find, and a queue of 64.
type Config struct {
	// Workers is the number of processes; 0 is 1. Each runs one call at a time.
	Workers int
	// Queue is the number of calls that may wait for a worker; 0 is 64.
	Queue int
	// Wait makes calls wait, until their contexts end, also if Queue calls are waiting. If Wait is
	// false, these calls fail with executor.ErrFull.
	Wait bool
	// Grace is how long a call may run after the end of its context before its worker is killed; 0
	// is two seconds.
	Grace time.Duration
	// Least is the number of workers that must be ready for Health to be nil; 0 is 1.
	Least int

	// Restarts is how often each worker is restarted within Window; 0 is 5. A worker that ended is
	// restarted immediately the first time, later after a wait that doubles from 0.1 to 5 s. A worker
	// that needs more restarts is not started before the window allows it. If this holds for all
	// workers, calls are refused with ErrRestarts, and Health returns an error; both include the last
	// death. A Window of 0 is one minute.
	Restarts int
	Window   time.Duration
	// StartTime is how long a worker may take from its start until it is ready, and for each call of
	// Pool.CallEach that it repeats; 0 is ten minutes.
	StartTime time.Duration

	// Python is the environment that the workers use; nil is that of python.Find.
	Python *python.Environment
	// Path is put at the front of Python's module search path.
	Path []string
	// Modules are made in each worker, in order, before anything is imported.
	Modules []Module
	// Import are modules that are imported before the steps of Warm.
	Import []string
	// Warm are functions ("module:name") that are called in each worker, in order and without
	// arguments, before its first call.
	Warm []string
	// Serial names functions and modules as executor.Config.Serial does. A worker process runs one
	// call at a time, so that every function meets its rule.
	Serial []string

	// Env is added to the environment of the workers ("OMP_NUM_THREADS=1"). The last value of a name
	// counts.
	Env []string
	// Output receives the standard output and standard error of the workers; nil is os.Stderr. One
	// goroutine at a time writes to it. While a Write blocks, workers with much output wait for it,
	// but workers that have ended do not: the end of their output may be missing from Death.
	Output io.Writer
	// Program is the program to start, with its arguments. It must call Main. nil is this program.
	Program []string

	// Memory bounds the memory of usmbridge's arrays in each worker. The zero value has no bounds.
	Memory Memory
	// SYCL is the queue whose context results in USM belong to. The caller owns it and keeps it open
	// until Close. nil: results are host memory in this process.
	SYCL *syclobj.Queue
	// MaxMessage bounds the bytes of the values of a call, and of its result, without the memory of
	// arrays; 0 is 64 MiB.
	MaxMessage int
}

// Memory bounds the memory of usmbridge's arrays in a worker, in bytes. 0 is no bound. An array beyond a bound raises
// MemoryError. Memory of other libraries, such as NumPy's, is not bounded.
type Memory struct {
	// Call bounds the arrays that one call makes and uses at a time.
	Call uint64
	// Kept bounds, together with Call, the memory that the pools of the process hold from the system: arrays that are
	// kept and those made outside of calls.
	Kept uint64
	// Result bounds the arrays of a result that must be copied, because their memory is not usmbridge's. If they are
	// larger, nothing is copied and the call fails with ErrTooLong. The copies have memory in addition to Kept and Call.
	Result uint64
}

// limit returns the bound of all pools of a worker, 0 for none.
func (m *Memory) limit() uint64 {
	if m.Kept == 0 {
		return 0
	}
	return m.Kept + m.Call + m.Result
}

// Bounds of Config.
const (
	defaultMessage = 64 << 20
	maxMessage     = 1 << 30
	maxWorkers     = 1024
)

// complete checks the configuration and sets the defaults.
func (c *Config) complete() error {
	for _, v := range []struct {
		name  string
		value int64
	}{
		{"Workers", int64(c.Workers)}, {"Queue", int64(c.Queue)}, {"Grace", int64(c.Grace)}, {"Least", int64(c.Least)},
		{"Restarts", int64(c.Restarts)}, {"Window", int64(c.Window)}, {"StartTime", int64(c.StartTime)}, {"MaxMessage", int64(c.MaxMessage)},
	} {
		if v.value < 0 {
			return fmt.Errorf("%s is negative, %d", v.name, v.value)
		}
	}
	setDefault(&c.Workers, 1)
	setDefault(&c.Queue, 64)
	setDefault(&c.Grace, 2*time.Second)
	setDefault(&c.Least, 1)
	setDefault(&c.Restarts, 5)
	setDefault(&c.Window, time.Minute)
	setDefault(&c.StartTime, 10*time.Minute)
	setDefault(&c.MaxMessage, defaultMessage)
	if c.Output == nil {
		c.Output = os.Stderr
	}
	switch {
	case c.Workers > maxWorkers:
		return fmt.Errorf("Workers is %d, at most %d are allowed", c.Workers, maxWorkers)
	case c.Least > c.Workers:
		return fmt.Errorf("Least is %d, and there are %d workers", c.Least, c.Workers)
	case c.MaxMessage > maxMessage:
		return fmt.Errorf("MaxMessage is %d, at most %d are allowed", c.MaxMessage, maxMessage)
	case c.Program != nil && (len(c.Program) == 0 || c.Program[0] == ""):
		return errors.New("Program names no program")
	}
	for _, name := range c.Warm {
		if err := calls.CheckFunction(name); err != nil {
			return fmt.Errorf("Warm: %w", err)
		}
	}
	if slices.Contains(c.Serial, "") {
		return errors.New("a name in Serial is empty")
	}
	for _, m := range c.Modules {
		if m.Name == "" {
			return errors.New("a module of Modules has no name")
		}
	}
	return nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
