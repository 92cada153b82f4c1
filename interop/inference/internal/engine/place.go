package engine

import (
	"math"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

// place is the memory of a tensor: memory of the pool, of which it holds a reference, or a part of a
// client's region. The zero place is empty.
type place struct {
	buffer memmgr.Buffer
	offset uint64       // of its first byte
	check  func() error // reports removed memory of the region; nil for memory of the pool
}

func (p *place) there() bool { return p.buffer.Valid() }

func (p *place) inRegion() bool { return p.check != nil }

// apart is the alignment of tensors in one buffer, a multiple of the size of any element.
const apart = 256

// batch is a list of tensors that get their memory at once.
type batch struct {
	places []*place
	total  uint64
}

func (b *batch) add(p *place, size uint64) error {
	if size > math.MaxInt64-apart || b.total > math.MaxInt64-apart-size {
		return oip.Errorf(oip.TooLarge, "the size of the tensors overflows")
	}
	p.offset = b.total
	b.places = append(b.places, p)
	b.total += (size + apart - 1) &^ (apart - 1)
	return nil
}

// allocate takes the memory from a pool. It waits until the request ends.
func (b *batch) allocate(r *Request, from Pool) error {
	if len(b.places) == 0 {
		return nil
	}
	if most := from.Limit - from.Limit/8; most != 0 && b.total > most { // the pool takes memory in segments
		return oip.Errorf(oip.TooLarge, "the tensors of the request to model %s take %d bytes; a request may have %d", r.model.def.Meta.Name, b.total, most)
	}
	buffer, err := memmgr.New(from.Pool, memmgr.Request{Size: uintptr(b.total), Tag: r.model.def.Meta.Name, Context: r.ctx})
	if err != nil {
		return r.clientError(err)
	}
	for _, p := range b.places {
		p.buffer = buffer.Retain()
	}
	buffer.Release()
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
	return b.allocate(r, r.model.engine.Options.Memory)
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

// copyPlace copies n bytes.
func copyPlace(to, from *place, n uint64) error {
	p, err := from.bytes(n)
	if err != nil {
		return err
	}
	q, err := to.bytes(n)
	if err == nil {
		copy(q, p)
	}
	return err
}
