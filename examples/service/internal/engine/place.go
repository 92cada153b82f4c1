package engine

import (
	"context"
	"errors"

	"github.com/usmbridge/usmbridge/examples/service/internal/oip"
	"github.com/usmbridge/usmbridge/examples/service/internal/region"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// place is where a tensor lies: in memory of the pool, or in a client's region. The zero
// place is none.
type place struct {
	buffer memmgr.Buffer
	lease  *region.Lease // of the region, whose buffer it is then
}

func (p *place) there() bool { return p.buffer.Valid() }

// allocate takes memory of the pool, charged to the request's tenant, waiting for it until
// the request ends.
func (p *place) allocate(r *Request, bytes uint64) error {
	if limit := r.model.engine.o.Limit; limit != 0 && bytes > limit {
		return oip.Errorf(oip.TooLarge, "a tensor of %d bytes: all tensors together may have %d", bytes, limit)
	}
	buffer, err := memmgr.New(r.account.memory, memmgr.Request{Size: uintptr(bytes), Tag: r.model.def.Meta.Name, Context: r.Context()})
	if err != nil {
		return r.noMemory(err, bytes)
	}
	p.buffer = buffer
	return nil
}

// noMemory tells a client why there is no memory for it.
func (r *Request) noMemory(err error, bytes uint64) error {
	if r.parent.Err() != nil && errors.Is(context.Cause(r.parent), context.Canceled) {
		return &oip.Error{Kind: oip.Cancelled, Message: "the request was cancelled", Err: err}
	}
	if r.Context().Err() == nil && errors.Is(err, memmgr.ErrOutOfMemory) && r.tooMuch(bytes) {
		return &oip.Error{Kind: oip.TooLarge, Message: "a client's tensors may not have as many bytes", Err: err}
	}
	if errors.Is(err, memmgr.ErrOutOfMemory) {
		r.model.engine.refused.Add(1)
		return &oip.Error{Kind: oip.Busy, Message: "there is no memory for this request at present", RetryAfter: retryAfter, Err: err}
	}
	return &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
}

// tooMuch tells whether so many bytes are more than a tenant may ever have.
func (r *Request) tooMuch(bytes uint64) bool {
	hard := r.model.engine.accounts.options.Hard
	return hard != 0 && bytes > hard
}

// borrow takes a range of a client's region.
func (p *place) borrow(r *Request, name string, offset, size uint64, write bool, dt oip.Datatype) error {
	regions := r.model.engine.o.Regions
	if regions == nil {
		return oip.Errorf(oip.Unsupported, "shared memory is not served here")
	}
	lease, err := regions.Acquire(name, offset, size, write)
	if err != nil {
		return oip.As(err)
	}
	if n := uintptr(dt.Size()); lease.Buffer().Address()%n != 0 {
		lease.Release()
		return oip.Errorf(oip.Invalid, "offset %d of region %s: elements of %s must lie at multiples of their size", offset, oip.Quote(name), dt)
	}
	p.buffer, p.lease = lease.Buffer(), lease
	return nil
}

// err tells whether what lies here is still what it was.
func (p *place) err() error {
	if p.lease == nil {
		return nil
	}
	if err := p.lease.Err(); err != nil {
		return &oip.Error{Kind: oip.Invalid, Message: "the shared memory of a tensor is not there any more", Err: err}
	}
	return nil
}

// array shows what lies here; it borrows.
func (p *place) array(dt usmarray.DataType, shape []int64, o ...usmarray.BufferOption) (*usmarray.Array, error) {
	l, err := layout(shape)
	if err != nil {
		return nil, err
	}
	a, err := usmarray.WrapBuffer(p.buffer, dt, l, o...)
	if err != nil {
		return nil, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
	}
	return a, nil
}

// bytes are the first n.
func (p *place) bytes(n uint64) ([]byte, error) {
	b, err := p.buffer.Bytes()
	if err != nil || uint64(len(b)) < n {
		return nil, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
	}
	return b[:n:n], nil
}

func (p *place) release() {
	switch {
	case p.lease != nil:
		p.lease.Release()
	case p.buffer.Valid():
		p.buffer.Release()
	}
	*p = place{}
}
