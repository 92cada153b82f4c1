package segment

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"os"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// ID identifies a segment among those of all processes. It is random and is not reused.
type ID [16]byte

// String returns the ID as hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Segment is a reference to memory of this process that other processes can map. It may be copied
// and compared. [Find] returns it. After the segment is freed, File and Handle fail; the other
// methods still work. Methods are safe for concurrent use. The zero Segment has no memory.
type Segment struct{ r *record }

// record is the state of a segment.
type record struct {
	id       ID
	region   region
	audience Audience
	of       *Resource

	mu     sync.Mutex
	freed  bool
	fd     int    // the memory file; -1 for memory with a handle
	handle []byte // made by the driver at the first call of Handle
}

// Find returns the segment that contains the bytes [address, address+size), and the offset of
// address in the segment, in bytes. It takes time logarithmic in the number of segments, and is safe
// for concurrent use.
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

// noSegment is the record of the zero Segment.
var noSegment = record{of: &Resource{}}

func (s Segment) record() *record { return cmp.Or(s.r, &noSegment) }

// ID returns the identity of the segment, zero for the zero Segment.
func (s Segment) ID() ID { return s.record().id }

// Size returns the bytes of the whole segment, a multiple of the page size.
func (s Segment) Size() uint64 { return uint64(s.record().region.size) }

// Audience returns the access that peers have to the whole segment.
func (s Segment) Audience() Audience { return s.record().audience }

// Place returns the place of the memory in this process, nil for the zero Segment.
func (s Segment) Place() *syclobj.Place { return s.record().of.Place() }

// lock locks the record of the segment. It fails if the segment was freed.
func (s Segment) lock(op string) error {
	if s.r == nil {
		return opError(op, memmgr.ErrClosed, "the zero Segment has no memory")
	}
	s.r.mu.Lock()
	if s.r.freed {
		s.r.mu.Unlock()
		return opError(op, memmgr.ErrClosed, "segment %v was freed; retain a buffer in it for as long as it is shared", s.r.id)
	}
	return nil
}

// File returns a new descriptor of the segment's memory, for a peer to pass to [Map]. The caller
// owns it and closes it. It is closed on exec, and stays valid after the segment is freed. The
// memory is sealed for its audience. File fails with memmgr.ErrClosed after the segment is freed,
// with errors.ErrUnsupported for memory that has a Handle instead, and with the kernel's error if
// there are too many descriptors.
func (s Segment) File() (*os.File, error) {
	const op = "Segment.File"
	if err := s.lock(op); err != nil {
		return nil, err
	}
	defer s.r.mu.Unlock()
	if s.r.fd < 0 {
		return nil, opError(op, errors.ErrUnsupported, "segment %v is %v, without a descriptor; use Handle", s.r.id, s.r.of.place)
	}
	fd, err := duplicate(s.r.fd)
	if err != nil {
		return nil, opError(op, nil, "duplicate the descriptor of segment %v: %w", s.r.id, err)
	}
	return os.NewFile(uintptr(fd), fileName), nil
}

// Handle returns the handle by which a peer opens device memory of the driver ([NewUSM] on a GPU),
// for Attachment.Handle. It is some tens of bytes, made and understood only by the driver. It is
// valid while the segment is allocated. The caller owns the slice. A process that has the handle,
// and may use the device as this process's user, can write to the memory. Handle fails with
// memmgr.ErrClosed after the segment is freed, and with errors.ErrUnsupported for memory that has a
// File instead.
func (s Segment) Handle() ([]byte, error) {
	const op = "Segment.Handle"
	if err := s.lock(op); err != nil {
		return nil, err
	}
	defer s.r.mu.Unlock()
	if s.r.fd >= 0 {
		return nil, opError(op, errors.ErrUnsupported, "segment %v is a memory file, without a handle; use File", s.r.id)
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

// fileName is the name of memory files, as in /proc/self/maps.
const fileName = "usmbridge"
