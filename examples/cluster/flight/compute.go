package main

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

//go:embed kernels.py
var kernels string

// worker is a process's memory and its Python function: a shard has one, and so does the
// client, to compare.
type worker struct {
	rt     *syclobj.Runtime
	memory memmgr.Resource
	module *python.Object
	onRows *python.Object
}

func openWorker() (_ *worker, err error) {
	w := &worker{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.rt, err = syclobj.Open(); err != nil {
		return nil, fmt.Errorf("SYCL: %w", err)
	}
	kind := syclobj.USMShared
	if w.rt.DefaultDevice().IsHost() {
		kind = syclobj.USMUnknown
	}
	if w.memory, err = memmgr.Default(w.rt.DefaultQueue(), kind); err != nil {
		return nil, err
	}
	if err := pymodule.Register(pymodule.SetRuntime(w.rt)); err != nil {
		return nil, err
	}
	py, err := python.Start()
	if err != nil {
		return nil, fmt.Errorf("this example needs Python with Numba (`make python` sets it up in .venv; name it in VIRTUAL_ENV): %w", err)
	}
	if w.module, err = py.Module("shard_kernels", kernels); err != nil {
		return nil, err
	}
	w.onRows, err = w.module.Attr("on_rows")
	return w, err
}

// apply is the function's array of some rows; the caller releases it.
func (w *worker) apply(rows *usmarray.Array) (*usmarray.Array, error) {
	x, err := pymodule.ToPython(rows)
	if err != nil {
		return nil, err
	}
	defer x.Release()
	y, err := w.onRows.Call(x)
	if err != nil {
		return nil, err
	}
	defer y.Release()
	return pymodule.FromPython(y)
}

// place is where the arrays of this process lie.
func (w *worker) place() string {
	if d := w.rt.DefaultDevice(); !d.IsHost() {
		return "shared USM of " + d.FilterString()
	}
	return "the host's memory"
}

func (w *worker) close() error {
	for _, o := range []*python.Object{w.onRows, w.module} {
		if o != nil {
			o.Release()
		}
	}
	if w.rt == nil {
		return nil
	}
	return w.rt.Close()
}
