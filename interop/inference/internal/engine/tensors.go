package engine

import (
	"slices"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Input is an input tensor that a client sends, or has in a region.
type Input struct {
	request *Request
	index   int
	given   bool
	shape   []int64
	size    uint64
	place   place
	theirs  place // the region, if place is a copy of it
	full    bool
}

// meta returns the declaration of the input.
func (in *Input) meta() *oip.Tensor { return &in.request.model.def.Meta.Inputs[in.index] }

// Input declares an input. Fill or Region must follow. Errors: Invalid for a datatype or shape that
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
	meta := in.meta()
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
	if limit := r.model.engine.o.Limit; limit != 0 && size > limit {
		return nil, oip.Errorf(oip.TooLarge, "input %s has %d bytes; all tensors together may have %d", name, size, limit)
	}
	in.given, in.shape, in.size = true, slices.Clone(shape), size
	return in, nil
}

// Size returns the size of the input in bytes.
func (in *Input) Size() uint64 { return in.size }

// Datatype returns the datatype of the elements.
func (in *Input) Datatype() oip.Datatype { return in.meta().Datatype }

// Fill waits for memory, charged to the tenant of the request, and calls read with memory of Size
// bytes. An error of read is returned unchanged. Errors: Busy, TooLarge, Deadline, Cancelled, and those of the function of the model that returns
// shapes.
func (in *Input) Fill(read func(p []byte) error) error {
	if in.full || in.theirs.there() || in.request.ran {
		return misuse("Fill on an input that has its memory")
	}
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
	in.full = true
	return nil
}

// Region uses a part of a region of the client from as the input, in place. offset and size are in
// bytes; size must be Size. Errors: those of region.Registry.Acquire, Invalid, Unsupported.
func (in *Input) Region(from peercred.Client, name string, offset, size uint64) error {
	if in.full || in.theirs.there() || in.request.ran {
		return misuse("Region on an input that has its memory")
	}
	if size != in.size {
		return oip.Errorf(oip.Invalid, "input %s takes %d bytes; the request gives %d of region %s", in.meta().Name, in.size, size, oip.Quote(name))
	}
	var p place
	if err := p.borrow(in.request, from, name, offset, size, false, in.meta().Datatype); err != nil {
		return err
	}
	if in.request.model.engine.o.Apart {
		in.theirs = p
		return nil
	}
	in.place.release() // reserved with other tensors
	in.place, in.full = p, true
	return nil
}

// copyIn copies an input from its region.
func (in *Input) copyIn() error {
	from, err := in.theirs.bytes(in.size)
	if err != nil {
		return err
	}
	to, err := in.place.bytes(in.size)
	if err != nil {
		return err
	}
	copy(to, from)
	in.full = true
	return nil
}

// Output is a requested output tensor.
type Output struct {
	request *Request
	index   int
	wanted  bool
	room    uint64 // bytes of the region
	place   place
	theirs  place // the region to which place is copied, if there is one
	shape   []int64
	size    uint64
}

func (o *Output) meta() *oip.Tensor { return &o.request.model.def.Meta.Outputs[o.index] }

// Output requests an output. If none is requested, Run returns all. Errors: Invalid, also for a
// second request.
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

// Region writes the output to a part of a region of the client from. offset and size are in bytes;
// the output may be smaller. Errors: those of Input.Region.
func (o *Output) Region(from peercred.Client, name string, offset, size uint64) error {
	if o.inRegion() || o.request.ran {
		return misuse("Region on an output that has one")
	}
	var p place
	if err := p.borrow(o.request, from, name, offset, size, true, o.meta().Datatype); err != nil {
		return err
	}
	o.room = size
	if o.request.model.engine.o.Apart {
		o.theirs = p
		return nil
	}
	o.place.release() // reserved with other tensors
	o.place = p
	return nil
}

func (o *Output) inRegion() bool { return o.place.inRegion() || o.theirs.there() }

// setShape sets the shape. It is an error if the region is too small.
func (o *Output) setShape(shape []int64) error {
	size, err := oip.Bytes(o.meta().Datatype, shape)
	if err != nil {
		return err
	}
	o.shape, o.size = shape, size
	if o.inRegion() && size > o.room {
		return oip.Errorf(oip.Invalid, "output %s has %d bytes; its region has room for %d", o.meta().Name, size, o.room)
	}
	return nil
}

// copyOut copies an output to its region.
func (o *Output) copyOut() error {
	from, err := o.place.bytes(o.size)
	if err != nil {
		return err
	}
	to, err := o.theirs.bytes(o.size)
	if err != nil {
		return err
	}
	copy(to, from)
	return nil
}

// Result is one output of a request. It is valid until End.
type Result struct {
	Name     string
	Datatype oip.Datatype
	Shape    []int64
	InRegion bool // the output is in the region of Output.Region and is not sent

	size   uint64
	data   []byte
	buffer memmgr.Buffer
}

// Size returns the size of the elements in bytes.
func (r *Result) Size() uint64 { return r.size }

// Bytes returns the elements, in C order and the byte order of the machine.
func (r *Result) Bytes() []byte { return r.data }

// Buffer returns the buffer of Bytes, borrowed. Retain it to keep the bytes after End.
func (r *Result) Buffer() memmgr.Buffer { return r.buffer }
