package main

import (
	_ "embed"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

//go:embed kernels.py
var kernels string

// service holds the compiled loops: the Python functions, and the address of the function that needs no
// Python. The module keeps the machine code alive.
type service struct {
	rt      *syclobj.Runtime
	memory  memmgr.Resource
	py      *python.Interpreter
	module  *python.Object
	direct  *python.Object // energy
	through *python.Object // energy of numpy.asarray
	address uintptr        // energy_at
}

// way is one way to compute the energy of a signal.
type way struct {
	name   string
	energy func(*usmarray.Array) (float64, error)
}

func openService() (_ *service, err error) {
	s := &service{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.rt, err = syclobj.Open(); err != nil {
		return nil, fmt.Errorf("SYCL: %w", err)
	}
	kind := syclobj.USMShared
	if s.rt.DefaultDevice().IsHost() {
		kind = syclobj.USMUnknown
	}
	if s.memory, err = memmgr.Default(s.rt.DefaultQueue(), kind); err != nil {
		return nil, err
	}
	if err := pymodule.Register(pymodule.SetRuntime(s.rt)); err != nil {
		return nil, err
	}
	if s.py, err = python.Start(); err != nil {
		return nil, fmt.Errorf("this example needs Python with Numba (`make python` sets it up in .venv): %w", err)
	}
	return s, s.compile()
}

// compile loads the module, which compiles the function for C. The others are compiled at their first
// call.
func (s *service) compile() (err error) {
	if s.module, err = s.py.Module("numba_kernels", kernels); err != nil {
		return err
	}
	if s.direct, err = s.module.Attr("energy"); err != nil {
		return err
	}
	if s.through, err = s.module.Attr("through_numpy"); err != nil {
		return err
	}
	at, err := s.module.Attr("address")
	if err != nil {
		return err
	}
	defer at.Release()
	address, err := at.Int()
	s.address = uintptr(address)
	return err
}

// signal allocates an array of n values in host-readable memory. The caller releases it.
func (s *service) signal(n int) (*usmarray.Array, error) {
	a, err := usmarray.New(s.memory, usmarray.Float64, []int{n})
	if err != nil {
		return nil, err
	}
	values, err := usmarray.Slice[float64](a)
	if err != nil {
		a.Release()
		return nil, err
	}
	for i := range values {
		values[i] = float64(i%1000) / 8
	}
	return a, nil
}

func (s *service) place() string {
	if d := s.rt.DefaultDevice(); !d.IsHost() {
		return "shared USM of " + d.FilterString()
	}
	return "host memory"
}

func (s *service) ways() []way {
	return []way{
		{"compiled, called with the Array", func(a *usmarray.Array) (float64, error) { return s.inPython(s.direct, a) }},
		{"compiled, called through numpy.asarray", func(a *usmarray.Array) (float64, error) { return s.inPython(s.through, a) }},
		{"compiled for C, called by Go without the GIL", s.inC},
		{"the same, by a goroutine for each processor", s.inCParallel},
		{"in Go", inGo},
	}
}

// inPython calls a function of the module.
func (s *service) inPython(f *python.Object, a *usmarray.Array) (float64, error) {
	x, err := pymodule.ToPython(a)
	if err != nil {
		return 0, err
	}
	defer x.Release()
	result, err := f.Call(x)
	if err != nil {
		return 0, err
	}
	defer result.Release()
	return result.Float()
}

// inC calls the machine code on the array's own memory, without Python.
func (s *service) inC(a *usmarray.Array) (float64, error) {
	values, err := usmarray.Slice[float64](a)
	if err != nil {
		return 0, err
	}
	return callEnergy(s.address, values)
}

// inCParallel computes parts of the sum in parallel.
func (s *service) inCParallel(a *usmarray.Array) (float64, error) {
	values, err := usmarray.Slice[float64](a)
	if err != nil {
		return 0, err
	}
	workers := min(runtime.GOMAXPROCS(0), len(values))
	parts, errs := make([]float64, workers), make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			part := values[i*len(values)/workers : (i+1)*len(values)/workers]
			parts[i], errs[i] = callEnergy(s.address, part)
		})
	}
	wg.Wait()
	total := 0.0
	for _, p := range parts {
		total += p
	}
	return total, errors.Join(errs...)
}

func inGo(a *usmarray.Array) (float64, error) {
	values, err := usmarray.Slice[float64](a)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, x := range values {
		total += float64(x * x) // rounded: no fused multiply-add on any machine
	}
	return total, nil
}

// close releases everything. It may be called on a partly opened service.
func (s *service) close() {
	for _, o := range []*python.Object{s.direct, s.through, s.module} {
		if o != nil {
			o.Release()
		}
	}
	if s.py != nil {
		_ = s.py.Close()
	}
}
