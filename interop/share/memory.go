package share

import (
	"crypto/rand"
	"errors"
	"os"

	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// memory is the segment that a lease covers: a segment of this process, or an orphan, which is a segment
// of another process that has ended.
type memory struct {
	segment segment.Segment
	base    uintptr // of the segment
	orphan  *held   // instead of segment and base; nil for a segment of this process
}

// file returns a new descriptor of the memory. The caller closes it.
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

// orphaned reports whether the maker of an opened array has ended. The end of the connection is not
// enough: if the maker lives, it may have ended the lease and reused the memory. While a maker is
// exiting, its devices may still write to the memory; see guard.
func (o *opened) orphaned() bool { return errors.Is(o.peer.Err(), ErrDied) }

// describeOrphan describes an array whose maker has ended. The lease retains the opened buffer,
// which keeps the segment's descriptor open.
func (l *lease) describeOrphan(op string, a *usmarray.Array, o *opened) error {
	if o.held.file == nil {
		return opError(op, ErrNotShared, "the array is device memory of a driver, whose maker, %v, has ended, and its bytes lie in no segment "+
			"of this process; copy the array into memory of package segment", o.peer)
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

// lentID returns the ID under which this process lends an orphan. It is not the ID that the maker chose:
// a malicious maker could have chosen the ID of a segment of this process, and receivers would confuse
// the two.
func (o *opened) lentID() segment.ID {
	o.peer.mu.Lock()
	defer o.peer.mu.Unlock()
	if o.held.lentAs == (segment.ID{}) {
		_, _ = rand.Read(o.held.lentAs[:]) // never fails
	}
	return o.held.lentAs
}
