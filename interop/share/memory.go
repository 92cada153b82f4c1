package share

import (
	"crypto/rand"
	"errors"
	"os"

	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// memory is the segment that a lease lends: one of this process, or one that this process has
// open and whose maker has ended.
type memory struct {
	segment segment.Segment
	base    uintptr // of the segment
	orphan  *held   // instead of segment and base
}

// file returns a descriptor of the memory, which is the caller's own.
func (m memory) file() (*os.File, error) {
	if m.orphan != nil {
		return duplicate(m.orphan.file)
	}
	return m.segment.File()
}

// gone reports whether the memory was freed, or unmapped.
func (m memory) gone() bool {
	if m.orphan != nil {
		return m.orphan.unmapped.Load()
	}
	s, _, ok := segment.Find(m.base, 1)
	return !ok || s != m.segment
}

// orphaned reports whether the process that made an opened array has ended. The end of the
// connection is not enough: a maker that lives may have ended the lease and may reuse the memory.
// While a maker is ending, its devices may still write to the memory; see guard.
func (o *opened) orphaned() bool { return errors.Is(o.peer.Err(), ErrDied) }

// describeOrphan describes an array whose maker has ended. The lease retains the opened buffer,
// which keeps the segment's descriptor open.
func (l *lease) describeOrphan(op string, a *usmarray.Array, o *opened) error {
	if o.held.file == nil {
		return opError(op, ErrNotShared, "the array is device memory of a driver, made by %v, which has ended, and its bytes %w; "+
			"copy the array, or set Options.CopyInto", o.peer, errElsewhere)
	}
	l.memory = memory{orphan: o.held}
	l.d = description{
		segment: o.held.facts, offset: o.lent.offset, size: o.lent.size, dtype: a.DataType(),
		readOnly: a.ReadOnly() || o.lent.readOnly || o.held.facts.audience == segment.PeersRead,
		padded:   a.Padded(), layout: a.Layout(),
	}
	l.d.segment.id = o.lentID()
	return nil
}

// lentID returns the ID under which this process lends a segment of another maker. It is a new
// one: the maker chose its own, perhaps that of a segment of this process, which recipients would
// then confuse with it.
func (o *opened) lentID() segment.ID {
	o.peer.mu.Lock()
	defer o.peer.mu.Unlock()
	if o.held.lentAs == (segment.ID{}) {
		_, _ = rand.Read(o.held.lentAs[:]) // never fails: the program ends where there is no randomness
	}
	return o.held.lentAs
}
