package main

import (
	"fmt"
	"image"
	"io"
	"time"

	"github.com/usmbridge/usmbridge/examples/internal/photo"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// job is the processing of one picture.
type job struct {
	*bridge
	width, height int

	picture, grey, edges *usmarray.Array // Go's three buffers
	returned             *usmarray.Array // the edges, imported again
	shown                map[*usmarray.Array]*python.Object

	device    string // filter string of the device that computed the luminance
	engine    string // library that computed the edges
	handovers []handover
	steps     []step
}

// step is one computation between hand-overs.
type step struct {
	name               string
	compiled, computed time.Duration
}

// process computes the edges of a picture. The caller releases the job when it has read the result.
func (b *bridge) process(picture image.Image) (*job, error) {
	j := &job{
		bridge: b, width: picture.Bounds().Dx(), height: picture.Bounds().Dy(),
		shown: map[*usmarray.Array]*python.Object{},
	}
	if err := j.allocate(); err != nil {
		j.release()
		return nil, err
	}
	for _, stage := range []func() error{
		func() error {
			return usmarray.View(j.picture, func(pixels []float32) error { photo.Fill(pixels, picture); return nil })
		},
		j.computeLuminance,
		j.computeEdges,
	} {
		if err := stage(); err != nil {
			j.release()
			return nil, err
		}
	}
	return j, nil
}

// allocate allocates the buffers: shared USM of the device, or host memory.
func (j *job) allocate() error {
	memory, err := memmgr.Default(j.queue, syclobj.USMShared)
	if err != nil {
		return err
	}
	for _, want := range []struct {
		array **usmarray.Array
		dt    usmarray.DataType
		shape []int
	}{
		{&j.picture, usmarray.Float32, []int{j.height, j.width, 3}},
		{&j.grey, usmarray.Float32, []int{j.height, j.width}},
		{&j.edges, usmarray.Uint8, []int{j.height, j.width}},
	} {
		a, err := usmarray.New(memory, want.dt, want.shape, usmarray.WithTag("picture"))
		if err != nil {
			return err
		}
		*want.array = a
		if j.shown[a], err = pymodule.ToPython(a); err != nil {
			return fmt.Errorf("passing an array to Python: %w", err)
		}
	}
	return nil
}

// computeLuminance exports the picture and the grey buffer and imports the grey one again: with dpctl by
// the dictionary, with NumPy by DLPack.
func (j *job) computeLuminance() error {
	engine, protocol, take := "NumPy", "DLPack", "from_dlpack"
	function, args := "with_numpy", []any{j.shown[j.picture], j.shown[j.grey]}
	if j.dpctl {
		engine, protocol, take = "dpctl", "__sycl_usm_array_interface__", "from_usm_array_interface"
		function, args = "with_dpctl", append(args, luminanceKernel)
	}
	a, result, err := call(j.luminance, function, args...)
	if err != nil {
		return fmt.Errorf("the luminance: %w", err)
	}
	defer result.Release()
	j.device = a.Device
	j.record("picture", protocol, engine, j.picture, a.Handovers[0])
	j.record("luminance", protocol, engine, j.grey, a.Handovers[1])
	j.steps = append(j.steps, step{"luminance by " + engine + " on " + j.device, ns(a.Compiled), ns(a.Computed)})

	returned, err := j.takeBack("luminance", protocol, engine, take, j.grey, result)
	if err != nil {
		return err
	}
	returned.Release()
	return nil
}

// computeEdges exports the grey buffer and the edges and imports the edges again, all by DLPack.
func (j *job) computeEdges() error {
	a, result, err := call(j.sobel, "run", j.shown[j.grey], j.shown[j.edges])
	if err != nil {
		return fmt.Errorf("the edges: %w", err)
	}
	defer result.Release()
	j.engine = a.Engine
	j.record("luminance", "DLPack", a.Engine, j.grey, a.Handovers[0])
	j.record("edges", "DLPack", a.Engine, j.edges, a.Handovers[1])
	j.steps = append(j.steps, step{"edges by " + a.Engine, ns(a.Compiled), ns(a.Computed)})
	j.returned, err = j.takeBack("edges", "DLPack", a.Engine, "from_dlpack", j.edges, result)
	return err
}

// record adds a hand-over from Go, which Python measured.
func (j *job) record(buffer, protocol, to string, a *usmarray.Array, seen [2]int64) {
	j.handovers = append(j.handovers, handover{
		buffer: buffer, protocol: protocol, from: "Go", to: to,
		here: uintptr(a.Pointer()), there: uintptr(seen[0]), bytes: a.NBytes(), took: ns(seen[1]),
	})
}

// takeBack imports an object of Python as an array, by the named function of the module usmbridge.
func (j *job) takeBack(buffer, protocol, from, function string, sent *usmarray.Array, object *python.Object) (*usmarray.Array, error) {
	var returned *usmarray.Array
	began := time.Now()
	err := j.py.With(func() error {
		array, err := j.usmbridge.Method(function, object)
		if err != nil {
			return err
		}
		defer array.Release()
		returned, err = pymodule.FromPython(array)
		return err
	})
	took := time.Since(began)
	if err != nil {
		return nil, fmt.Errorf("importing the %s from %s: %w", buffer, from, err)
	}
	j.handovers = append(j.handovers, handover{
		buffer: buffer, protocol: protocol, from: from, to: "Go",
		here: uintptr(sent.Pointer()), there: uintptr(returned.Pointer()), bytes: sent.NBytes(), took: took,
	})
	return returned, nil
}

// pixels returns the result in the memory that Numba wrote. It is valid until release.
func (j *job) pixels() ([]uint8, error) { return usmarray.Slice[uint8](j.returned) }

// print writes the device, the table of hand-overs and the times of the computations.
func (j *job) print(w io.Writer) {
	fmt.Fprintf(w, "device:  %s\n\n", j.device)
	printTable(w, j.handovers)
	fmt.Fprintln(w)
	for _, s := range j.steps {
		fmt.Fprintf(w, "%-40s %8.2f ms", s.name, float64(s.computed.Nanoseconds())/1e6)
		if s.compiled > 0 {
			fmt.Fprintf(w, "  (and %.0f ms to compile)", float64(s.compiled.Nanoseconds())/1e6)
		}
		fmt.Fprintln(w)
	}
}

// release releases the arrays, Python's objects first.
func (j *job) release() {
	for _, o := range j.shown {
		if o != nil {
			o.Release()
		}
	}
	for _, a := range []*usmarray.Array{j.returned, j.picture, j.grey, j.edges} {
		if a != nil {
			a.Release()
		}
	}
}

// answer is the dictionary that the Python functions return besides their array.
type answer struct {
	Device    string
	Engine    string
	Handovers [][2]int64 // address, nanoseconds
	Compiled  int64
	Computed  int64
}

// call runs a function of luminance.py or sobel.py. The object is the resulting array; the caller releases
// it.
func call(module *python.Object, function string, args ...any) (answer, *python.Object, error) {
	var a answer
	tuple, err := module.Method(function, args...)
	if err != nil {
		return a, nil, err
	}
	defer tuple.Release()
	array, err := tuple.Item(1)
	if err != nil {
		return a, nil, err
	}
	if a, err = readAnswer(tuple); err != nil {
		array.Release()
		return a, nil, err
	}
	return a, array, nil
}

// readAnswer converts the dictionary.
func readAnswer(tuple *python.Object) (a answer, err error) {
	facts, err := tuple.Item(0)
	if err != nil {
		return a, err
	}
	defer facts.Release()
	for key, field := range map[string]any{
		"device": &a.Device, "engine": &a.Engine, "handovers": &a.Handovers,
		"compiled": &a.Compiled, "computed": &a.Computed,
	} {
		item, err := facts.Item(key)
		if err != nil {
			return a, err
		}
		switch p := field.(type) {
		case *string:
			*p, err = python.As[string](item)
		case *int64:
			*p, err = python.As[int64](item)
		case *[][2]int64:
			*p, err = python.As[[][2]int64](item)
		}
		item.Release()
		if err != nil {
			return a, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(a.Handovers) != 2 {
		return a, fmt.Errorf("%d hand-overs reported, want 2", len(a.Handovers))
	}
	return a, nil
}

func ns(n int64) time.Duration { return time.Duration(n) }
