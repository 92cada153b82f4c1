package region

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// Lease is a range of a region in use. Release ends it; its methods may be called from any
// goroutine before.
type Lease struct {
	entry    *entry
	buffer   memmgr.Buffer
	released atomic.Bool
}

// Acquire lends a client size bytes of a region, beginning at offset. The buffer is read-only
// unless write is set. Ranges may overlap and may be lent any number of times; writes by several
// requests are not ordered. Errors: NotFound, also for regions that the client may not use, Invalid
// for bytes that the region does not have and for memory that was truncated, NotReady after Close.
func (r *Registry) Acquire(from peercred.Client, name string, offset, size uint64, write bool) (*Lease, error) {
	e, err := r.enter(from, name, offset, size)
	if err != nil {
		return nil, err
	}
	if err := e.lost(); err != nil {
		r.leave(e)
		return nil, err
	}
	b, err := memmgr.FromForeign(unsafe.Add(e.mapping.Data(), offset), size, memmgr.ForeignOptions{
		Place:   e.mapping.Place(),
		Release: func() { r.leave(e) },
	})
	if err != nil {
		r.leave(e)
		return nil, &oip.Error{Kind: oip.Busy, Message: "no more memory can be referred to at present", Err: err}
	}
	if !write {
		b.SetReadOnly()
	}
	return &Lease{entry: e, buffer: b}, nil
}

// enter counts a lease, which keeps the mapping, of bytes that are in the region.
func (r *Registry) enter(from peercred.Client, name string, offset, size uint64) (*entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed()
	}
	e, ok := r.visible(from, name)
	if !ok {
		return nil, unknown(name)
	}
	if offset > e.info.Size || size > e.info.Size-offset {
		return nil, oip.Errorf(oip.Invalid, "region %s has %d bytes, and %d from %d on are asked for", oip.Quote(name), e.info.Size, size, offset)
	}
	e.leases++
	r.leases++
	return e, nil
}

// leave ends a lease; the last one of a region that is gone ends the mapping.
func (r *Registry) leave(e *entry) {
	r.mu.Lock()
	e.leases--
	r.leases--
	last := e.gone && e.leases == 0
	r.mu.Unlock()
	if last {
		_ = e.mapping.Close()
	}
}

// lost is the error of memory that was cut off, nil where all of it is there.
func (e *entry) lost() error {
	switch err := e.mapping.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, segment.ErrTruncated):
		return &oip.Error{Kind: oip.Invalid, Err: err,
			Message: "the shared memory of region " + oip.Quote(e.info.Name) + " was cut off; unregister it, and register what is there"}
	case errors.Is(err, memmgr.ErrClosed):
		return &oip.Error{Kind: oip.Invalid, Err: err, Message: "region " + oip.Quote(e.info.Name) + " was unregistered"}
	default:
		return &oip.Error{Kind: oip.Internal, Err: err, Message: "the shared memory of region " + oip.Quote(e.info.Name) + " cannot be used"}
	}
}

// Buffer returns the memory of exactly the range, borrowed until Release. Retain it for longer use.
func (l *Lease) Buffer() memmgr.Buffer { return l.buffer }

// Err returns an error if memory of the region was removed. Call it after the use of the memory and
// before Release. Errors: Invalid.
func (l *Lease) Err() error { return l.entry.lost() }

// Release releases the lease's own reference. It may be called again.
func (l *Lease) Release() {
	if l.released.CompareAndSwap(false, true) {
		l.buffer.Release()
	}
}
