package engine

import (
	"slices"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// tensor is an input or output of a request, with its memory.
type tensor struct {
	request *Request
	output  bool        // not an input
	index   int         // in the order of the model
	meta    *oip.Tensor // its declaration
	dtype   usmarray.DataType
	shape   []int64
	size    uint64 // bytes
	place   place  // the memory that the model gets
	region  place  // the region of which place is a copy, if models run in other processes
	room    uint64 // bytes of the region
}

func (t *tensor) inRegion() bool { return t.place.inRegion() || t.region.there() }

// Region uses size bytes of a region of the client from, beginning at offset, as the tensor. An input takes exactly
// its size, and an output may be smaller. Errors: those of region.Registry.Acquire, Invalid.
func (t *tensor) Region(from peercred.Client, name string, offset, size uint64) error {
	if !t.output && size != t.size {
		return oip.Errorf(oip.Invalid, "input %s takes %d bytes; the request gives %d of region %s", t.meta.Name, t.size, size, oip.Quote(name))
	}
	o := &t.request.model.engine.Options
	b, check, err := o.Regions.Acquire(from, name, offset, size, t.output)
	if err != nil {
		return err
	}
	if n := uintptr(t.meta.Datatype.Size()); b.Address()%n != 0 {
		b.Release()
		return oip.Errorf(oip.Invalid, "offset %d of region %s: elements of %s must lie at multiples of their size", offset, oip.Quote(name), t.meta.Datatype)
	}
	t.room = size
	if o.Apart {
		t.region = place{buffer: b, check: check}
		return nil
	}
	t.place.release() // reserved with other tensors
	t.place = place{buffer: b, check: check}
	return nil
}

// array returns an array on the memory, which it borrows.
func (t *tensor) array(o ...usmarray.Option) (*usmarray.Array, error) {
	extents := make([]int, len(t.shape))
	for i, extent := range t.shape {
		extents[i] = int(extent)
	}
	l, err := usmarray.NewLayout(extents, nil, int(t.place.offset)/t.dtype.Size())
	if err != nil {
		return nil, err
	}
	return usmarray.WrapBuffer(t.place.buffer, t.dtype, l, o...)
}

// lost returns an error if shared memory of the tensor was removed.
func (t *tensor) lost() error {
	for _, p := range []*place{&t.place, &t.region} {
		if p.inRegion() {
			if err := p.check(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tensor) release() {
	t.place.release()
	t.region.release()
}

// Input is an input tensor that a client sends, or has in a region.
type Input struct {
	tensor
	given  bool // declared by Input
	filled bool // by Fill
}

// Input declares an input. Fill or Region must follow, once. Errors: Invalid for a datatype or shape that
// the model does not accept, and for a second declaration; TooLarge.
func (r *Request) Input(name, datatype string, shape []int64) (*Input, error) {
	i, ok := r.model.inputs[name]
	if !ok {
		return nil, oip.Errorf(oip.Invalid, "model %s has no input %s", r.model.def.Meta.Name, oip.Quote(name))
	}
	in := &r.inputs[i]
	if in.given {
		return nil, oip.Errorf(oip.Invalid, "duplicate input %s", name)
	}
	meta := in.meta
	if datatype != meta.Datatype.String() {
		if _, err := oip.Parse(datatype); err != nil {
			return nil, err
		}
		return nil, oip.Errorf(oip.Invalid, "input %s is %s, not %s", name, meta.Datatype, datatype)
	}
	size, err := oip.Bytes(meta.Datatype, shape)
	if err != nil {
		return nil, err
	}
	if !meta.Fits(shape) {
		return nil, oip.Errorf(oip.Invalid, "input %s has shape %v; model %s takes %v, -1 for any extent", name, shape, r.model.def.Meta.Name, meta.Shape)
	}
	if limit := r.model.engine.Options.Memory.Limit; limit != 0 && size > limit {
		return nil, oip.Errorf(oip.TooLarge, "input %s has %d bytes; all tensors together may have %d", name, size, limit)
	}
	in.given, in.shape, in.size = true, slices.Clone(shape), size
	return in, nil
}

// Name returns the name of the input.
func (in *Input) Name() string { return in.meta.Name }

// Size returns the size of the input in bytes.
func (in *Input) Size() uint64 { return in.size }

// Datatype returns the datatype of the elements.
func (in *Input) Datatype() oip.Datatype { return in.meta.Datatype }

// Fill waits for memory, and calls read with memory of Size
// bytes. An error of read is returned unchanged. Errors: Busy, TooLarge, Deadline, Cancelled, and those of
// the function of the model that returns shapes.
func (in *Input) Fill(read func(p []byte) error) error {
	if !in.place.there() {
		if err := in.request.reserve(); err != nil {
			return err
		}
	}
	p, err := in.place.bytes(in.size)
	if err != nil {
		return err
	}
	if err := read(p); err != nil {
		return err
	}
	in.filled = true
	return nil
}

// Output is a requested output tensor.
type Output struct {
	tensor
	wanted bool
}

// Output requests an output. If none is requested, Run returns all. Region may follow, once. Errors: Invalid,
// also for a second request.
func (r *Request) Output(name string) (*Output, error) {
	i, ok := r.model.outputs[name]
	if !ok {
		return nil, oip.Errorf(oip.Invalid, "model %s has no output %s", r.model.def.Meta.Name, oip.Quote(name))
	}
	o := &r.outputs[i]
	if o.wanted {
		return nil, oip.Errorf(oip.Invalid, "output %s is requested twice", name)
	}
	o.wanted = true
	r.wanted = append(r.wanted, o)
	return o, nil
}

// setShape sets the shape. It is an error if the region is too small.
func (o *Output) setShape(shape []int64) error {
	size, err := oip.Bytes(o.meta.Datatype, shape)
	if err != nil {
		return err
	}
	o.shape, o.size = shape, size
	if o.inRegion() && size > o.room {
		return oip.Errorf(oip.Invalid, "output %s has %d bytes; its region has room for %d", o.meta.Name, size, o.room)
	}
	return nil
}

// Result is one output of a request. It is valid until End.
type Result struct {
	Name     string
	Datatype oip.Datatype
	Shape    []int64
	Size     uint64 // bytes
	InRegion bool   // the output is in a region

	// Bytes are the elements to be sent, in C order and the byte order of the machine; none of an output in a
	// region. Buffer is their buffer, borrowed: retain it to keep them after End.
	Bytes  []byte
	Buffer memmgr.Buffer
}
