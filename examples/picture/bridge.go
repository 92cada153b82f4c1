package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/syclobj"
)

//go:embed steps.py
var stepsSource string

//go:embed luminance.cl
var luminanceKernel string

// bridge holds the devices and the interpreter.
type bridge struct {
	rt        *syclobj.Runtime
	queue     *syclobj.Queue
	py        *python.Interpreter
	steps     *python.Object // module of steps.py
	usmbridge *python.Object // the built-in module
	dpctl     bool           // there is a SYCL device, and dpctl is installed
}

// openBridge opens SYCL and starts Python. Without SYCL it prints the reason and uses the host backend.
// Without Python it returns an error.
func openBridge(w io.Writer) (_ *bridge, err error) {
	b := &bridge{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if b.rt, err = syclobj.Open(); err != nil {
		return nil, fmt.Errorf("SYCL: %w", err)
	}
	if err := pymodule.Register(pymodule.SetRuntime(b.rt)); err != nil {
		return nil, err
	}
	if b.py, err = python.Start(); err != nil {
		return nil, fmt.Errorf("this example needs Python with NumPy and Numba (`make python` sets it up in .venv): %w", err)
	}
	if b.steps, err = b.py.Module("picture_steps", stepsSource); err != nil {
		return nil, err
	}
	if b.usmbridge, err = b.py.Import("usmbridge"); err != nil {
		return nil, err
	}
	if err := b.imports("numpy"); err != nil {
		return nil, fmt.Errorf("NumPy is missing in %s (`make python` sets everything up in .venv): %w", b.py.Environment().Prefix, err)
	}
	b.chooseDevice(w)
	return b, nil
}

// imports returns an error if a module cannot be imported.
func (b *bridge) imports(module string) error {
	m, err := b.py.Import(module)
	m.Release()
	return err
}

// chooseDevice selects the default SYCL device if dpctl can be imported, and otherwise the host backend.
func (b *bridge) chooseDevice(w io.Writer) {
	b.queue = b.rt.DefaultQueue()
	why := b.rt.SYCLError()
	if why == nil && b.queue.Device().IsHost() {
		why = errors.New("the SYCL library lists no device; `pip install intel-opencl-rt` gives it the CPU")
	}
	if why == nil {
		why = b.imports("dpctl.program")
	}
	if b.dpctl = why == nil; !b.dpctl {
		b.queue = b.rt.HostQueue()
		fmt.Fprintf(w, "no SYCL: %v\nThe host backend and NumPy are used instead.\n", why)
	}
}

// close releases everything. It may be called on a partly opened bridge.
func (b *bridge) close() (err error) {
	b.steps.Release()
	b.usmbridge.Release()
	if b.py != nil {
		err = b.py.Close()
	}
	if b.rt != nil {
		err = errors.Join(err, b.rt.Close())
	}
	return err
}
