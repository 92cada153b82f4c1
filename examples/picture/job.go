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

// job is one picture on its way.
type job struct {
	*bridge
	width, height int

	picture, grey, edges *usmarray.Array // Go's three buffers
	returned             *usmarray.Array // the edges, as they came back
	shown                map[*usmarray.Array]*python.Object

	device    string // filter string of where the luminance was computed
	engine    string // who computed the edges
	handovers []handover
	steps     []step
}

// step is one piece of work between hand-overs.
type step struct {
	what               string
	compiled, computed time.Duration
}

// process takes the picture through the three buffers. The caller releases the
// job when it has read the result.
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

// allocate makes the buffers: shared USM of the device, or host memory.
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
			return fmt.Errorf("showing an array to Python: %w", err)
		}
	}
	return nil
}

// computeLuminance hands the picture and the grey buffer out and takes the grey
// one back, by the dictionary with dpctl, by DLPack with NumPy.
func (j *job) computeLuminance() error {
	who, protocol, take := "NumPy", "DLPack", "from_dlpack"
	function, args := "with_numpy", []any{j.shown[j.picture], j.shown[j.grey]}
	if j.dpctl {
		who, protocol, take = "dpctl", "__sycl_usm_array_interface__", "from_usm_array_interface"
		function, args = "with_dpctl", append(args, luminanceKernel)
	}
	a, result, err := call(j.luminance, function, args...)
	if err != nil {
		return fmt.Errorf("the luminance: %w", err)
	}
	defer result.Release()
	j.device = a.Device
	j.record("picture", protocol, who, j.picture, a.Handovers[0])
	j.record("luminance", protocol, who, j.grey, a.Handovers[1])
	j.steps = append(j.steps, step{"luminance by " + who + " on " + j.device, ns(a.Compiled), ns(a.Computed)})

	returned, err := j.takeBack("luminance", protocol, who, take, j.grey, result)
	if err != nil {
		return err
	}
	returned.Release()
	return nil
}

// computeEdges hands the grey buffer and the edges out and takes the edges
// back, all by DLPack.
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

// record notes a hand-over from Go, as the other side measured it.
func (j *job) record(what, protocol, to string, a *usmarray.Array, seen [2]int64) {
	j.handovers = append(j.handovers, handover{
		what: what, protocol: protocol, from: "Go", to: to,
		here: uintptr(a.Pointer()), there: uintptr(seen[0]), bytes: a.NBytes(), took: ns(seen[1]),
	})
}

// takeBack makes an array of Go's out of an object of the other side, through
// the named function of the module usmbridge.
func (j *job) takeBack(what, protocol, from, function string, sent *usmarray.Array, object *python.Object) (*usmarray.Array, error) {
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
		return nil, fmt.Errorf("taking the %s back from %s: %w", what, from, err)
	}
	j.handovers = append(j.handovers, handover{
		what: what, protocol: protocol, from: from, to: "Go",
		here: uintptr(sent.Pointer()), there: uintptr(returned.Pointer()), bytes: sent.NBytes(), took: took,
	})
	return returned, nil
}

// pixels is the result, in the memory that Numba wrote.
func (j *job) pixels() ([]uint8, error) { return usmarray.Slice[uint8](j.returned) }

// print shows the device, the table and the times of the work itself.
func (j *job) print(w io.Writer) {
	fmt.Fprintf(w, "device:  %s\n\n", j.device)
	printTable(w, j.handovers)
	fmt.Fprintln(w)
	for _, s := range j.steps {
		fmt.Fprintf(w, "%-40s %8.2f ms", s.what, float64(s.computed.Nanoseconds())/1e6)
		if s.compiled > 0 {
			fmt.Fprintf(w, "  (and %.0f ms to compile)", float64(s.compiled.Nanoseconds())/1e6)
		}
		fmt.Fprintln(w)
	}
}

// release gives the arrays up, Python's view of them first.
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

// answer is what the Python functions return besides their array.
type answer struct {
	Device    string
	Engine    string
	Handovers [][2]int64 // address, nanoseconds
	Compiled  int64
	Computed  int64
}

// call runs a function of luminance.py or sobel.py. The object is the array
// that it returns; the caller releases it.
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

// readAnswer converts the dict of the facts.
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
