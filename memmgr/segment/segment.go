package segment

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// ID names a segment for ever: it is random, and no other segment of any process
// has it.
type ID [16]byte

// String gives the ID in hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Segment is memory of this process that others can map: a handle, which may be
// copied and compared. It is found by [Find], and stays valid while a buffer in it
// does; afterwards File fails, and the rest still tells what the segment was. Its
// methods may be called from any goroutine. The zero Segment has no memory.
type Segment struct{ r *record }

// record is what a Segment refers to.
type record struct {
	id       ID
	region   region
	audience Audience
	of       *Resource

	mu     sync.Mutex
	gone   bool
	fd     int    // the memory file; -1 for device memory of a driver
	handle []byte // of the driver, once somebody asked
}

// Find returns the segment that bytes [address, address+size) lie in, and the
// offset of address in it, in bytes. It takes time logarithmic in the number of
// segments, waits for nobody, and may be called from any goroutine.
func Find(address uintptr, size uint64) (s Segment, offset uint64, ok bool) {
	r := live.find(address)
	if r == nil {
		return Segment{}, 0, false
	}
	offset = uint64(address - r.region.base)
	if size > uint64(r.region.size)-offset {
		return Segment{}, 0, false
	}
	return Segment{r}, offset, true
}

// ID returns the segment's name.
func (s Segment) ID() ID {
	if s.r == nil {
		return ID{}
	}
	return s.r.id
}

// Size returns the bytes of the whole segment, a multiple of the page size.
func (s Segment) Size() uint64 {
	if s.r == nil {
		return 0
	}
	return uint64(s.r.region.size)
}

// Audience says what peers may do with all of the segment.
func (s Segment) Audience() Audience {
	if s.r == nil {
		return 0
	}
	return s.r.audience
}

// Place tells the facts of the memory in this process, as the buffers in it do.
func (s Segment) Place() *syclobj.Place {
	if s.r == nil {
		return nil
	}
	return s.r.of.Place()
}

// File returns a descriptor of the segment's memory for a peer, which [Map] takes.
// It is the caller's own, closed on exec, and stays good when the segment is gone;
// the caller closes it. The memory was sealed for its audience before anybody could
// ask for it. It fails with kind memmgr.ErrClosed when the segment is gone, with
// errors.ErrUnsupported for memory that has a Handle instead, and with the kernel's
// reason when there are too many descriptors.
func (s Segment) File() (*os.File, error) {
	const op = "Segment.File"
	if s.r == nil {
		return nil, opError(op, memmgr.ErrClosed, "the zero Segment has no memory")
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.gone {
		return nil, s.r.freed(op)
	}
	if s.r.fd < 0 {
		return nil, opError(op, errors.ErrUnsupported, "segment %v is %v; Handle is what others open it by", s.r.id, s.r.of.place)
	}
	fd, err := duplicate(s.r.fd)
	if err != nil {
		return nil, opError(op, nil, "a second descriptor of segment %v: %w", s.r.id, err)
	}
	return os.NewFile(uintptr(fd), fileName), nil
}

// Handle returns what a peer opens device memory by where it is the driver's
// ([NewUSM] on a GPU), for [Attachment]: some tens of bytes that the driver made, which
// mean nothing to anybody else and hold while the segment is allocated; the caller's own.
// Whoever has them, and may use the device as this process's user, can write. It fails
// with kind memmgr.ErrClosed when the segment is gone, and with errors.ErrUnsupported for
// memory that has a File instead.
func (s Segment) Handle() ([]byte, error) {
	const op = "Segment.Handle"
	if s.r == nil {
		return nil, opError(op, memmgr.ErrClosed, "the zero Segment has no memory")
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.gone {
		return nil, s.r.freed(op)
	}
	if s.r.fd >= 0 {
		return nil, opError(op, errors.ErrUnsupported, "segment %v is a memory file; File gives its descriptor", s.r.id)
	}
	if s.r.handle == nil {
		handle, err := handleOf(s.r.of.place, s.r.region.base)
		if err != nil {
			return nil, opError(op, nil, "segment %v: %w", s.r.id, err)
		}
		s.r.handle = handle
	}
	return bytes.Clone(s.r.handle), nil
}

// freed is the error of a segment that is gone.
func (r *record) freed(op string) error {
	return opError(op, memmgr.ErrClosed, "segment %v was freed; retain a buffer in it for as long as it is shared", r.id)
}

// fileName is what the system's lists of mappings show for segments.
const fileName = "usmbridge"
