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

//go:embed luminance.py
var luminanceSource string

//go:embed luminance.cl
var luminanceKernel string

//go:embed sobel.py
var sobelSource string

// bridge holds the devices and the interpreter.
type bridge struct {
	rt        *syclobj.Runtime
	queue     *syclobj.Queue
	py        *python.Interpreter
	luminance *python.Object // module of luminance.py
	sobel     *python.Object // module of sobel.py
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
	if err := b.load(); err != nil {
		return nil, err
	}
	b.chooseDevice(w)
	return b, nil
}

// load creates the two modules and imports the built-in one.
func (b *bridge) load() (err error) {
	if b.luminance, err = b.py.Module("picture_luminance", luminanceSource); err != nil {
		return err
	}
	if b.sobel, err = b.py.Module("picture_sobel", sobelSource); err != nil {
		return err
	}
	if b.usmbridge, err = b.py.Import("usmbridge"); err != nil {
		return err
	}
	numpy, err := b.py.Import("numpy")
	if err != nil {
		return fmt.Errorf("NumPy is missing in %s (`make python` sets everything up in .venv): %w", b.py.Environment().Prefix, err)
	}
	numpy.Release()
	return nil
}

// chooseDevice selects the default SYCL device if dpctl can be imported, and otherwise the host backend.
func (b *bridge) chooseDevice(w io.Writer) {
	b.queue = b.rt.DefaultQueue()
	why := b.rt.SYCLError()
	if why == nil && b.queue.Device().IsHost() {
		why = errors.New("the SYCL library lists no device; `pip install intel-opencl-rt` gives it the CPU")
	}
	if why == nil {
		var dpctl *python.Object
		if dpctl, why = b.py.Import("dpctl.program"); why == nil {
			dpctl.Release()
			b.dpctl = true
			return
		}
	}
	b.queue = b.rt.HostQueue()
	fmt.Fprintf(w, "no SYCL: %v\nThe host backend and NumPy are used instead.\n", why)
}

// close releases everything. It may be called on a partly opened bridge.
func (b *bridge) close() error {
	for _, o := range []*python.Object{b.luminance, b.sobel, b.usmbridge} {
		if o != nil {
			o.Release()
		}
	}
	var err error
	if b.py != nil {
		err = b.py.Close()
	}
	if b.rt != nil {
		err = errors.Join(err, b.rt.Close())
	}
	return err
}
