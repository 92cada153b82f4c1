package engine

import (
	"context"
	"errors"
	"math"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// place is the memory of a tensor: memory of the pool, of which it holds a reference, or a part of a
// client's region. The zero place is empty.
type place struct {
	buffer memmgr.Buffer
	offset uint64       // of its first byte
	check  func() error // reports removed memory of the region; nil for memory of the pool
}

func (p *place) there() bool { return p.buffer.Valid() }

func (p *place) address() uintptr { return p.buffer.Address() + uintptr(p.offset) }

// apart is the alignment of tensors in one buffer, a multiple of the size of any element.
const apart = 256

// batch is a list of tensors that get their memory at once.
type batch struct {
	places  []*place
	offsets []uint64
	total   uint64
}

func (b *batch) add(p *place, size uint64) error {
	if size > math.MaxInt64-apart || b.total > math.MaxInt64-apart-size {
		return oip.Errorf(oip.TooLarge, "the size of the tensors overflows")
	}
	b.places, b.offsets = append(b.places, p), append(b.offsets, b.total)
	b.total += (size + apart - 1) &^ (apart - 1)
	return nil
}

// allocate takes the memory, charged to the tenant of the request, which may have most bytes. It
// waits until the request ends.
func (b *batch) allocate(r *Request, from *memmgr.Tenant, most uint64) error {
	if len(b.places) == 0 {
		return nil
	}
	if most != 0 && b.total > most {
		return oip.Errorf(oip.TooLarge, "the tensors of the request to model %s take %d bytes; a client may have %d", r.model.def.Meta.Name, b.total, most)
	}
	buffer, err := memmgr.New(from, memmgr.Request{Size: uintptr(b.total), Tag: r.model.def.Meta.Name, Context: r.Context()})
	if err != nil {
		return r.noMemory(err)
	}
	for i, p := range b.places {
		if i > 0 {
			buffer = buffer.Retain()
		}
		*p = place{buffer: buffer, offset: b.offsets[i]}
	}
	return nil
}

// reserve takes memory for all known tensors without memory, at once: two requests that each held a
// part and waited for the rest could wait for each other.
func (r *Request) reserve() error {
	var b batch
	all := true
	for i := range r.inputs {
		in := &r.inputs[i]
		all = all && in.given
		if in.given && !in.place.there() {
			if err := b.add(&in.place, in.size); err != nil {
				return err
			}
		}
	}
	if all && r.model.def.Bound {
		if err := r.shapeOutputs(); err != nil {
			return err
		}
		for i := range r.outputs {
			if o := &r.outputs[i]; !o.place.there() {
				if err := b.add(&o.place, o.size); err != nil {
					return err
				}
			}
		}
	}
	return b.allocate(r, r.account.memory, r.model.engine.accounts.options.Hard)
}

// shapeOutputs sets the shapes of bound outputs.
func (r *Request) shapeOutputs() error {
	m := r.model
	if m.def.Shapes != "" && r.shapes == nil {
		shapes, err := r.askShapes()
		if err != nil {
			return r.logged(err)
		}
		r.shapes = shapes
	}
	for i := range r.outputs {
		var shape []int64
		if r.shapes != nil {
			shape = r.shapes[i]
		} else {
			shape = m.shapeOf(i, r.inputs)
		}
		if err := r.outputs[i].setShape(shape); err != nil {
			return err
		}
	}
	return nil
}

// noMemory returns the error for the client of a failed allocation.
func (r *Request) noMemory(err error) error {
	if r.parent.Err() != nil && errors.Is(context.Cause(r.parent), context.Canceled) {
		return &oip.Error{Kind: oip.Cancelled, Message: "the request was cancelled", Err: err}
	}
	if errors.Is(err, memmgr.ErrOutOfMemory) {
		return &oip.Error{Kind: oip.Busy, Message: "out of memory: try again later", RetryAfter: retryAfter, Err: err}
	}
	return &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
}

// borrow acquires a range of a region that the client may use.
func (p *place) borrow(r *Request, from peercred.Client, name string, offset, size uint64, write bool, dt oip.Datatype) error {
	regions := r.model.engine.o.Regions
	if regions == nil {
		return region.ErrNetwork
	}
	b, check, err := regions.Acquire(from, name, offset, size, write)
	if err != nil {
		return oip.As(err)
	}
	if n := uintptr(dt.Size()); b.Address()%n != 0 {
		b.Release()
		return oip.Errorf(oip.Invalid, "offset %d of region %s: elements of %s must lie at multiples of their size", offset, oip.Quote(name), dt)
	}
	*p = place{buffer: b, check: check}
	return nil
}

func (p *place) inRegion() bool { return p.check != nil }

// err returns an error if the region of the place was removed.
func (p *place) err() error {
	if p.check == nil {
		return nil
	}
	if err := p.check(); err != nil {
		return &oip.Error{Kind: oip.Invalid, Message: "the shared memory of a tensor was removed", Err: err}
	}
	return nil
}

// array returns an array on the memory, which it borrows.
func (p *place) array(dt usmarray.DataType, shape []int64, o ...usmarray.Option) (*usmarray.Array, error) {
	l, err := layout(shape, int(p.offset)/dt.Size())
	if err != nil {
		return nil, err
	}
	a, err := usmarray.WrapBuffer(p.buffer, dt, l, o...)
	if err != nil {
		return nil, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
	}
	return a, nil
}

// bytes returns the first n bytes.
func (p *place) bytes(n uint64) ([]byte, error) {
	b, err := p.buffer.Bytes()
	if err != nil || uint64(len(b)) < p.offset+n {
		return nil, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
	}
	return b[p.offset : p.offset+n : p.offset+n], nil
}

func (p *place) release() {
	if p.there() {
		p.buffer.Release()
	}
	*p = place{}
}
