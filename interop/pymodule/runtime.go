package pymodule

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ErrRegistered is returned by Register when options come after the module has
// been used.
var ErrRegistered = errors.New("pymodule: the module is in use already; register it, with its options, before Python starts")

// Option changes what Register sets up.
type Option func(*settings)

type settings struct {
	runtime  *syclobj.Runtime
	resource ResourceFunc
}

// ResourceFunc chooses the resource that arrays made in Python get their memory
// from, for a queue and a kind of USM (syclobj.USMUnknown on the host backend's
// queue). It is called for each allocation, from any goroutine.
type ResourceFunc func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error)

// SetRuntime lets the module use a Runtime of the program's, which stays open
// until Python has ended. Without it the module opens one when it needs one.
func SetRuntime(rt *syclobj.Runtime) Option { return func(s *settings) { s.runtime = rt } }

// SetResource lets the module take memory from resources of the program's;
// without it they are those of memmgr.Default.
func SetResource(f ResourceFunc) Option { return func(s *settings) { s.resource = f } }

// state is what the module works with: its Runtime, and where its memory comes from.
var state struct {
	mu       sync.Mutex
	rt       *syclobj.Runtime
	own      bool // opened here
	resource ResourceFunc
	paths    []string // where Python looks for packages
}

func setPaths(paths []string) {
	state.mu.Lock()
	defer state.mu.Unlock()
	state.paths = paths
}

// configureDrivers makes the OpenCL CPU driver that lies in the environment of Python's
// dpctl known, before anyone lists devices: a program that imports dpctl after this
// module, or before it, finds them. The error tells that somebody has listed them.
func configureDrivers(paths []string) error {
	library := os.Getenv(syclobj.EnvLibrary)
	if library == "" {
		library = libraryIn(paths)
	}
	if !filepath.IsAbs(library) || filepath.Base(library) != "libDPCTLSyclInterface.so" {
		return nil
	}
	packages := filepath.Dir(filepath.Dir(library)) // ENV/lib/python3.N/site-packages
	_, err := syclobj.ConfigureOpenCL(filepath.Dir(filepath.Dir(packages)))
	return err
}

// libraryIn is the library of the dpctl that Python would import, "" for none. What depends
// on the working directory does not count.
func libraryIn(paths []string) string {
	for _, p := range paths {
		library := filepath.Join(p, "dpctl", "libDPCTLSyclInterface.so")
		if _, err := os.Stat(library); filepath.IsAbs(p) && err == nil {
			return library
		}
	}
	return ""
}

// openSYCL opens a Runtime on the library that Python itself would load with
// dpctl: two libraries in one process know nothing of each other's contexts. Where Python has none,
// or USMBRIDGE_SYCL decides, it is found as for any program.
func openSYCL(paths []string) (*syclobj.Runtime, error) {
	if os.Getenv(syclobj.EnvLibrary) == "" {
		if library := libraryIn(paths); library != "" {
			if rt, err := syclobj.Open(syclobj.WithLibrary(library)); err == nil {
				return rt, nil
			}
		}
	}
	return syclobj.Open()
}

func configure(options []Option) error {
	var s settings
	for _, o := range options {
		o(&s)
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.rt != nil && s.runtime != nil && state.rt != s.runtime {
		return ErrRegistered
	}
	if s.runtime != nil {
		state.rt = s.runtime
	}
	if s.resource != nil {
		state.resource = s.resource
	}
	return nil
}

// openRuntime returns the module's Runtime, opening it at first use. again asks
// for another look for SYCL where there was none: a library that was not in the
// process then may be there now.
func openRuntime(again bool) (*syclobj.Runtime, error) {
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.rt != nil && (!again || state.rt.HasSYCL() || !state.own) {
		return state.rt, nil
	}
	rt, err := openSYCL(state.paths)
	if err != nil {
		return state.rt, err
	}
	if state.rt != nil {
		// Without SYCL: nothing hangs on it.
		_ = state.rt.Close()
	}
	state.rt, state.own = rt, true
	return rt, nil
}

// resourceOn is the resource for a queue and kind.
func resourceOn(q *syclobj.Queue, usm syclobj.USMKind) (memmgr.Resource, error) {
	if choose := chosen(); choose != nil {
		return choose(q, kindOn(q, usm))
	}
	p, err := memmgr.Default(q, kindOn(q, usm))
	if err != nil {
		return nil, err // and not a nil *Pool in an interface
	}
	return p, nil
}

// chosen is the program's choice of resources, nil for none.
func chosen() ResourceFunc {
	state.mu.Lock()
	defer state.mu.Unlock()
	return state.resource
}

// kindOn is the kind of memory that there is on a queue where one is asked for.
func kindOn(q *syclobj.Queue, usm syclobj.USMKind) syclobj.USMKind {
	if q.IsHost() {
		return syclobj.USMUnknown
	}
	return usm
}

// ownPool reports whether memory there comes from a pool that the process shares, as it
// is: not from a resource of the program's, nor from a pool whose uses are checked.
func ownPool(q *syclobj.Queue, usm syclobj.USMKind) bool {
	if chosen() != nil || os.Getenv(memmgr.DebugEnv) != "" {
		return false
	}
	r, err := resourceOn(q, usm)
	_, pool := r.(*memmgr.Pool)
	return err == nil && pool
}

// setLimit bounds what the shared pools have from the system; 0 is no bound.
func setLimit(bytes uint64) error {
	if chosen() != nil {
		return errors.New("this program gives Python's arrays memory of its own choice; its limits are the program's")
	}
	memmgr.SetDefaultLimit(bytes)
	return nil
}

// tag names Python's arrays in statistics.
const tag = "python"

// memory is where new arrays of Python's get theirs from.
type memory struct {
	from memmgr.Resource
	wait context.Context // what an allocation may wait for room; nil: it does not
}

// memoryOn finds it for a queue and kind. inArena has the arena looked for that the context
// of the call on this thread may carry: then memory is that arena's, and an allocation waits
// as long as the call may run.
func memoryOn(q *syclobj.Queue, usm syclobj.USMKind, inArena bool) (m memory, err error) {
	if inArena {
		ctx := calling.Context()
		if a := arena.FromContext(ctx); a != nil {
			if ctx.Done() != nil {
				m.wait = ctx
			}
			m.from, err = a.Resource(q, kindOn(q, usm), arena.Chooser(chosen()))
			return m, err
		}
	}
	m.from, err = resourceOn(q, usm)
	return m, err
}

func (m memory) allocate(q *syclobj.Queue, bytes uintptr) (memmgr.Buffer, error) {
	return memmgr.New(m.from, memmgr.Request{Size: bytes, Queue: q, Tag: tag, Context: m.wait})
}

// copyOf makes an array of a type with the elements of another, in C order; padded has
// sub-byte elements take a byte each. It is complete on return, since the memory of
// others may go then.
func (m memory) copyOf(src *usmarray.Array, q *syclobj.Queue, dt usmarray.DataType, padded bool) (*usmarray.Array, error) {
	opts := []usmarray.Option{usmarray.WithQueue(q), usmarray.WithTag(tag), usmarray.WithContext(m.wait)}
	if padded {
		opts = append(opts, usmarray.Padded())
	}
	a, err := usmarray.New(m.from, dt, src.Shape(), opts...)
	if err != nil {
		return nil, err
	}
	if err = a.ConvertFrom(src); err == nil {
		err = multierr.Append(a.Wait(), src.Wait())
	}
	if err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}
