package workers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Module is Python source that a program carries: each worker makes a module of it.
type Module struct {
	Name   string // as it is imported
	Source string
}

// Config says how a Pool works. The zero value is one worker with the Python that
// python.Find gives, and a queue of 64.
type Config struct {
	// Workers is how many processes there are; 0 is 1. Each runs one call at a time.
	Workers int
	// Queue is how many calls may wait for a worker; 0 is 64.
	Queue int
	// Wait has a call wait, as long as its context allows, where Queue of them wait already.
	// Without it that is executor.ErrFull.
	Wait bool
	// Grace is how long a call may run after its context's end before its worker is killed;
	// 0 is two seconds.
	Grace time.Duration
	// Least is how many workers must be ready for Health to be nil; 0 is 1.
	Least int

	// Restarts is how often each worker may be started anew within Window before it is left
	// alone until that is over; 0 is 5, and 0 of Window a minute.
	Restarts int
	Window   time.Duration
	// StartTime is how long a worker may take from its start until it is ready; 0 is ten
	// minutes.
	StartTime time.Duration

	// Python is the environment that the workers use; nil is that of python.Find.
	Python *python.Environment
	// Path stands before Python's own places to import from.
	Path []string
	// Modules are made in each worker, in order, before anything is imported.
	Modules []Module
	// Import are modules that are imported before the steps of Warm.
	Import []string
	// Warm are functions ("module:name") that are called in each worker, in order and without
	// arguments, before its first call.
	Warm []string

	// Env is added to the environment of the workers ("OMP_NUM_THREADS=1"); of two values
	// of a name the last one holds.
	Env []string
	// Output is where what the workers write to standard output and standard error goes,
	// beside their last words; nil is os.Stderr. It is written to by one goroutine at a time.
	// While a Write blocks, workers that write much wait for it, but none that has ended does;
	// what they wrote after it may be missing from their last words.
	Output io.Writer
	// Program is what is started, with its arguments: it calls Main. nil is this program.
	Program []string

	// SYCL is where results that are USM become USM of this process; it stays the caller's,
	// and open until Close. nil: they are memory of the host here.
	SYCL *syclobj.Queue
	// MaxMessage is how many bytes the values of a call, or of its result, may take on
	// their way, arrays apart; 0 is 64 MiB.
	MaxMessage int
}

// Bounds of Config.
const (
	defaultMessage = 64 << 20
	maxMessage     = 1 << 30
	maxWorkers     = 1024
)

// complete checks the configuration and fills in what was left out.
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
		return fmt.Errorf("%d workers, and %d is the most", c.Workers, maxWorkers)
	case c.Least > c.Workers:
		return fmt.Errorf("Least is %d, and there are %d workers", c.Least, c.Workers)
	case c.MaxMessage > maxMessage:
		return fmt.Errorf("MaxMessage is %d, and %d is the most", c.MaxMessage, maxMessage)
	case c.Program != nil && (len(c.Program) == 0 || c.Program[0] == ""):
		return errors.New("Program names no program")
	}
	for _, name := range c.Warm {
		if err := checkFunction(name); err != nil {
			return fmt.Errorf("Warm: %w", err)
		}
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

// checkFunction wants "module:name".
func checkFunction(name string) error {
	module, path, ok := strings.Cut(name, ":")
	if !ok || module == "" || path == "" {
		return fmt.Errorf("%q names no function: wanted \"module:name\": %w", name, python.ValueError)
	}
	return nil
}
