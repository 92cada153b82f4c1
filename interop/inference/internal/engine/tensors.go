package engine

import (
	"slices"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Input is one tensor that a client sends, or points to.
type Input struct {
	request *Request
	index   int
	given   bool
	shape   []int64
	size    uint64
	place   place
	theirs  place // the region it comes from, where place is a copy
	full    bool
}

// meta describes what the model wants.
func (in *Input) meta() *oip.Tensor { return &in.request.model.def.Meta.Inputs[in.index] }

// Input declares an input: its datatype and shape must be what the model takes. Fill or
// Region must follow. Errors: Invalid, also for one that was given before, and TooLarge.
func (r *Request) Input(name, datatype string, shape []int64) (*Input, error) {
	i, ok := r.model.inputs[name]
	if !ok {
		return nil, oip.Errorf(oip.Invalid, "model %s has no input %s", r.model.def.Meta.Name, oip.Quote(name))
	}
	in := &r.inputs[i]
	if in.given {
		return nil, oip.Errorf(oip.Invalid, "input %s is given twice", name)
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
		return nil, oip.Errorf(oip.TooLarge, "input %s has %d bytes: all tensors together may have %d", name, size, limit)
	}
	in.given, in.shape, in.size = true, slices.Clone(shape), size
	return in, nil
}

// Size returns the bytes that the input takes.
func (in *Input) Size() uint64 { return in.size }

// Datatype is that of the input's elements.
func (in *Input) Datatype() oip.Datatype { return in.meta().Datatype }

// Fill waits for memory, charged to the request's tenant, and, while other tenants are about, for
// its turn, and has read fill all of it, Size bytes. An error of read comes back as it is. Errors: Busy, TooLarge, Deadline,
// Cancelled, and those of a model that tells the shapes of its outputs.
func (in *Input) Fill(read func(p []byte) error) error {
	if in.full || in.theirs.there() || in.request.ran {
		return misuse("Fill on an input that has its memory")
	}
	if !in.place.there() {
		if err := in.request.reserve(); err != nil {
			return err
		}
	}
	// Reading is work too: of a client that floods little is done at a time while others are about.
	if err := in.request.ticket.Early(in.request.Context()); err != nil {
		return in.request.told(err)
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

// Region takes the input, in place, from a region that the client from may use: offset and size
// are in bytes, and size must be Size. Errors: those of region.Registry.Acquire, Invalid,
// Unsupported.
func (in *Input) Region(from peercred.Client, name string, offset, size uint64) error {
	if in.full || in.theirs.there() || in.request.ran {
		return misuse("Region on an input that has its memory")
	}
	if size != in.size {
		return oip.Errorf(oip.Invalid, "input %s takes %d bytes, and %d of region %s are given", in.meta().Name, in.size, size, oip.Quote(name))
	}
	var p place
	if err := p.borrow(in.request, from, name, offset, size, false, in.meta().Datatype); err != nil {
		return err
	}
	if in.request.model.engine.o.Apart {
		in.theirs = p
		return nil
	}
	in.place.release() // which was reserved with others'
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

// Output is one tensor that a client wants.
type Output struct {
	request *Request
	index   int
	wanted  bool
	room    uint64 // bytes of the region
	place   place
	theirs  place // the region it is copied to, where place is not that
	shape   []int64
	size    uint64
}

func (o *Output) meta() *oip.Tensor { return &o.request.model.def.Meta.Outputs[o.index] }

// Output asks for an output; where none is asked for, all come. Errors: Invalid, also for one
// that was asked for before.
func (r *Request) Output(name string) (*Output, error) {
	i, ok := r.model.outputs[name]
	if !ok {
		return nil, oip.Errorf(oip.Invalid, "model %s has no output %s", r.model.def.Meta.Name, oip.Quote(name))
	}
	o := &r.outputs[i]
	if o.wanted {
		return nil, oip.Errorf(oip.Invalid, "output %s is asked for twice", name)
	}
	o.wanted = true
	r.wanted = append(r.wanted, o)
	return o, nil
}

// Region has the output written to a region that the client from may use: offset and size are in
// bytes, and the output may take less. Errors: those of Input.Region.
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
	o.place.release() // which was reserved with others'
	o.place = p
	return nil
}

func (o *Output) inRegion() bool { return o.place.lease != nil || o.theirs.lease != nil }

// setShape fixes the shape, where a region has room for it.
func (o *Output) setShape(shape []int64) error {
	size, err := oip.Bytes(o.meta().Datatype, shape)
	if err != nil {
		return err
	}
	o.shape, o.size = shape, size
	if o.inRegion() && size > o.room {
		return oip.Errorf(oip.Invalid, "output %s has %d bytes, and its region has room for %d", o.meta().Name, size, o.room)
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

// Result is one output of a request that ran. It is valid until the request's End.
type Result struct {
	Name     string
	Datatype oip.Datatype
	Shape    []int64
	InRegion bool // it lies where Output.Region said, and needs not be sent

	size   uint64
	data   []byte
	buffer memmgr.Buffer
}

// Size returns the bytes of the elements.
func (r *Result) Size() uint64 { return r.size }

// Bytes are the elements, in C order and the machine's byte order.
func (r *Result) Bytes() []byte { return r.data }

// Buffer is the memory that Bytes lie in, borrowed, for those who keep them beyond End.
func (r *Result) Buffer() memmgr.Buffer { return r.buffer }
