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

	device    string // filter string of the device that computed the luminance
	handovers []handover
	times     []string // of the computations between hand-overs
}

// process computes the edges of a picture. The caller releases the job when it has read the result.
func (b *bridge) process(picture image.Image) (_ *job, err error) {
	j := &job{bridge: b, width: picture.Bounds().Dx(), height: picture.Bounds().Dy()}
	defer func() {
		if err != nil {
			j.release()
		}
	}()
	if err := j.allocate(); err != nil {
		return nil, err
	}
	fill := func(pixels []float32) error { photo.Fill(pixels, picture); return nil }
	if err := usmarray.View(j.picture, fill); err != nil {
		return nil, err
	}
	s := step{"luminance_by_numpy", "DLPack", "from_dlpack", "picture", j.picture, "luminance", j.grey}
	var extra []any
	if b.dpctl {
		s.function, s.protocol, s.importer = "luminance_by_dpctl", "__sycl_usm_array_interface__", "from_usm_array_interface"
		extra = []any{luminanceKernel}
	}
	returned, device, err := j.run(s, extra...)
	if err != nil {
		return nil, err
	}
	returned.Release()
	j.device = device
	j.returned, _, err = j.run(step{"edges", "DLPack", "from_dlpack", "luminance", j.grey, "edges", j.edges})
	return j, err
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
		if *want.array, err = usmarray.New(memory, want.dt, want.shape, usmarray.WithTag("picture")); err != nil {
			return err
		}
	}
	return nil
}

// step is a function of steps.py and the buffers that it reads and writes.
type step struct {
	function string
	protocol string // by which both sides import
	importer string // the function of the module usmbridge for that protocol
	input    string
	from     *usmarray.Array
	output   string
	to       *usmarray.Array
}

// run passes two buffers to Python, imports the second one again, and records these three hand-overs. The caller
// releases the array.
func (j *job) run(s step, extra ...any) (returned *usmarray.Array, device string, err error) {
	from, err := pymodule.ToPython(s.from)
	if err != nil {
		return nil, "", fmt.Errorf("passing the %s to Python: %w", s.input, err)
	}
	defer from.Release()
	to, err := pymodule.ToPython(s.to)
	if err != nil {
		return nil, "", fmt.Errorf("passing the %s to Python: %w", s.output, err)
	}
	defer to.Release()
	tuple, err := j.steps.Method(s.function, append([]any{from, to}, extra...)...)
	if err != nil {
		return nil, "", fmt.Errorf("computing the %s: %w", s.output, err)
	}
	defer tuple.Release()
	value, err := tuple.Value()
	if err != nil {
		return nil, "", err
	}
	facts := value.(python.Tuple) // as steps.py describes it
	result, library, device := facts[0].(*python.Object), facts[1].(string), facts[2].(string)
	defer result.Release()
	number := func(i int) int64 { return facts[i].(int64) }
	j.record(s.input, s.protocol, "Go", library, s.from, uintptr(number(3)), time.Duration(number(4)))
	j.record(s.output, s.protocol, "Go", library, s.to, uintptr(number(5)), time.Duration(number(6)))
	line := fmt.Sprintf("%-40s %8.2f ms", s.output+" by "+library+" on "+device, float64(number(8))/1e6)
	if compiled := number(7); compiled > 1e6 {
		line += fmt.Sprintf("  (and %d ms to compile)", compiled/1e6)
	}
	j.times = append(j.times, line)

	began := time.Now()
	err = j.py.With(func() error {
		array, err := j.usmbridge.Method(s.importer, result)
		if err != nil {
			return err
		}
		defer array.Release()
		returned, err = pymodule.FromPython(array)
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("importing the %s from %s: %w", s.output, library, err)
	}
	j.record(s.output, s.protocol, library, "Go", s.to, uintptr(returned.Pointer()), time.Since(began))
	return returned, device, nil
}

// record adds a hand-over of a buffer that the other side has at the address there.
func (j *job) record(buffer, protocol, from, to string, a *usmarray.Array, there uintptr, took time.Duration) {
	j.handovers = append(j.handovers, handover{
		buffer: buffer, protocol: protocol, from: from, to: to,
		here: uintptr(a.Pointer()), there: there, bytes: a.NBytes(), took: took,
	})
}

// pixels returns the result in the memory that Numba wrote. It is valid until release.
func (j *job) pixels() ([]uint8, error) { return usmarray.Slice[uint8](j.returned) }

// print writes the device, the table of hand-overs and the times of the computations.
func (j *job) print(w io.Writer) {
	fmt.Fprintf(w, "device:  %s\n\n", j.device)
	printTable(w, j.handovers)
	fmt.Fprintln(w)
	for _, line := range j.times {
		fmt.Fprintln(w, line)
	}
}

// release releases the arrays.
func (j *job) release() {
	for _, a := range []*usmarray.Array{j.returned, j.picture, j.grey, j.edges} {
		a.Release()
	}
}
