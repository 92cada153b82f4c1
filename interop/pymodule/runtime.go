package pymodule

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ErrRegistered is returned by Register if the module uses another Runtime already.
var ErrRegistered = errors.New("pymodule: the module is in use already; register it, with its options, before Python starts")

// Option is an option of Register.
type Option func(*settings)

type settings struct {
	runtime      *syclobj.Runtime
	resource     arena.Chooser
	interprocess bool
}

// SetRuntime makes the module use rt. The program must keep it open until Python has ended.
// By default, the module opens a Runtime at first use.
func SetRuntime(rt *syclobj.Runtime) Option { return func(s *settings) { s.runtime = rt } }

// SetResource makes the module allocate from the resources that f returns for a queue and a kind
// of USM. It is called for each allocation, from any goroutine. It must not call runtime.Goexit: see
// python.Func. The default is memmgr.Default.
func SetResource(f arena.Chooser) Option { return func(s *settings) { s.resource = f } }

// SetInterprocess makes the module allocate new arrays in memory that other processes can map, as
// with interprocess=True, on the devices that have such memory. It has no effect with
// SetResource.
func SetInterprocess() Option { return func(s *settings) { s.interprocess = true } }

// state holds the Runtime and the settings of the module.
var state struct {
	mu           sync.Mutex
	rt           *syclobj.Runtime
	own          bool // the module has opened rt
	resource     arena.Chooser
	interprocess bool
	paths        []string // Python's search path for packages
}

func setPaths(paths []string) {
	state.mu.Lock()
	defer state.mu.Unlock()
	state.paths = paths
}

// configureDrivers registers the OpenCL CPU driver in the environment of Python's dpctl. It
// must run before SYCL lists its devices, in this module or in dpctl; otherwise it returns an
// error.
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

// libraryIn returns the library of the dpctl that Python would import, or "". It ignores
// relative paths.
func libraryIn(paths []string) string {
	for _, p := range paths {
		library := filepath.Join(p, "dpctl", "libDPCTLSyclInterface.so")
		if _, err := os.Stat(library); filepath.IsAbs(p) && err == nil {
			return library
		}
	}
	return ""
}

// sitePackages returns the directory in which the running Python installs packages, or "". Programs such as
// Jupyter run a Python that neither VIRTUAL_ENV nor PATH names.
func sitePackages() string {
	state.mu.Lock()
	defer state.mu.Unlock()
	for _, p := range state.paths {
		if name := filepath.Base(p); name == "site-packages" || name == "dist-packages" {
			return p
		}
	}
	return ""
}

// openSYCL opens a Runtime on the library of Python's dpctl, because two libraries in one
// process do not share their contexts. If Python has no dpctl or USMBRIDGE_SYCL is set, the
// library is found as in other programs.
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

// configure applies the options of Register.
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
	state.interprocess = state.interprocess || s.interprocess
	return nil
}

// openRuntime returns the module's Runtime, which it opens at first use. If the Runtime has no
// SYCL, again makes it search again, because the process may have loaded a library since.
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
		_ = state.rt.Close() // It has no SYCL, so it owns no devices.
	}
	state.rt, state.own = rt, true
	return rt, nil
}

// resourceOn returns the resource for a queue and a kind of USM.
func resourceOn(q *syclobj.Queue, usm syclobj.USMKind) (memmgr.Resource, error) {
	if f := resourceFunc(); f != nil {
		return f(q, kindOn(q, usm))
	}
	if sharesMemory() {
		if p, err := segment.Default(q, kindOn(q, usm), segment.PeersWrite); err == nil {
			return p, nil
		}
	}
	p, err := memmgr.Default(q, kindOn(q, usm))
	if err != nil {
		return nil, err // not a nil *Pool in an interface
	}
	return p, nil
}

// resourceFunc returns the function of SetResource, or nil.
func resourceFunc() arena.Chooser {
	state.mu.Lock()
	defer state.mu.Unlock()
	return state.resource
}

// sharesMemory reports whether SetInterprocess is in effect.
func sharesMemory() bool {
	state.mu.Lock()
	defer state.mu.Unlock()
	return state.interprocess
}

// kindOn returns usm, or syclobj.USMUnknown on the queue of the host backend.
func kindOn(q *syclobj.Queue, usm syclobj.USMKind) syclobj.USMKind {
	if q.IsHost() {
		return syclobj.USMUnknown
	}
	return usm
}

// ownPool reports whether memory comes from a shared pool of memmgr.Default that is not in
// debug mode.
func ownPool(q *syclobj.Queue, usm syclobj.USMKind) bool {
	if resourceFunc() != nil || os.Getenv(memmgr.DebugEnv) != "" {
		return false
	}
	r, err := resourceOn(q, usm)
	_, pool := r.(*memmgr.Pool)
	return err == nil && pool
}

// setLimit limits the memory that the shared pools reserve, in bytes. 0 means unlimited.
func setLimit(bytes uint64) error {
	if resourceFunc() != nil {
		return errors.New("the program allocates Python's arrays from its own resources (SetResource); set the limit there")
	}
	memmgr.SetDefaultLimit(bytes)
	return nil
}

// allocateShared allocates memory that other processes can map, from the pool of its audience.
func allocateShared(q *syclobj.Queue, usm syclobj.USMKind, audience segment.Audience, bytes uintptr) (memmgr.Buffer, error) {
	if resourceFunc() != nil {
		return memmgr.Buffer{}, errors.New("interprocess memory: the program allocates Python's arrays from its own resources (SetResource), which other processes cannot map")
	}
	r, err := segment.Default(q, kindOn(q, usm), audience)
	if err != nil {
		return memmgr.Buffer{}, fmt.Errorf("interprocess memory: %w", err)
	}
	return memmgr.New(r, memmgr.Request{Size: bytes, Queue: q, Tag: tag})
}

// counter is one entry of stats().
type counter struct {
	name  string
	value int64
}

// counters returns the counters of all pools, by the names of PyTorch's memory_stats, and those
// of live buffers, which include imported memory.
func counters() []counter {
	total := memmgr.TotalStats()
	m := total.Map()
	n, bytes := memmgr.LiveCount()
	m["live_buffers.all.current"] = int64(n)
	m["live_bytes.all.current"] = int64(bytes)
	list := make([]counter, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, counter{name, m[name]})
	}
	return list
}

// tag marks Python's arrays in statistics.
const tag = "python"

// memoryOn returns the resource for a queue and a kind of USM. If inArena is set and the context
// of the call on this thread carries an arena, memory comes from that arena, and allocations
// wait until that context ends.
func memoryOn(q *syclobj.Queue, usm syclobj.USMKind, inArena bool) (memmgr.Resource, error) {
	if !inArena {
		return resourceOn(q, usm)
	}
	ctx := calling.Context()
	a := arena.FromContext(ctx)
	if a == nil {
		return resourceOn(q, usm)
	}
	r, err := a.Resource(q, kindOn(q, usm), resourceFunc())
	switch {
	case err != nil:
		return nil, err
	case ctx.Done() == nil:
		return r, nil
	}
	return memmgr.Waiting(ctx, r), nil
}

// copyOf returns a copy of an array in C order, converted to an element type. With padded,
// each sub-byte element takes a byte. The copy is complete on return, because src may be
// memory that its owner frees then.
func copyOf(r memmgr.Resource, src *usmarray.Array, q *syclobj.Queue, dt usmarray.DataType, padded bool) (*usmarray.Array, error) {
	opts := []usmarray.Option{usmarray.WithQueue(q), usmarray.WithTag(tag)}
	if padded {
		opts = append(opts, usmarray.Padded())
	}
	a, err := usmarray.New(r, dt, src.Shape(), opts...)
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
