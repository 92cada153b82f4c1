package segment

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Attachment describes the segment of another process that [Map] maps.
type Attachment struct {
	// File is the descriptor that [Segment.File] returned in the other process. Map does not
	// keep it; the caller may close it after the call.
	File *os.File
	// Handle is the handle that [Segment.Handle] returned there. Set either File or Handle. A
	// Handle requires a Queue on the device of the memory, and the kind USMDevice. Its bytes go
	// to the driver unchecked: accept them only from peers that are trusted with the device.
	Handle []byte
	// Size, in bytes, and Audience are those of the segment, as the other process sent them. Map
	// refuses memory of another size or audience.
	Size     uint64
	Audience Audience
	// ReadOnly maps the memory so that writing to it from this process faults. PeersRead
	// requires it. With PeersWrite it protects only against mistakes, because the descriptor can
	// be opened again for writing. It does not protect memory with a Handle.
	ReadOnly bool
	// Queue makes the memory USM of kind Kind in the queue's context, on devices where [NewUSM]
	// can do so. With nil or a queue of the host backend it is host memory.
	Queue *syclobj.Queue
	Kind  syclobj.USMKind
}

// Mapping is memory of another process, mapped into this one by [Map] or [MapForeign]. The
// addresses are not mapped in forked children. Methods are safe for concurrent use.
type Mapping struct {
	region   region
	readOnly bool
	place    *syclobj.Place
	usm      memmgr.Resource // of the USM under the memory; nil for none
	once     sync.Once
	foreign  *foreign // nil for a segment

	mu     sync.RWMutex // read-locked by ReadAt and Err, so that Close waits for them
	closed bool
}

// Map maps a segment of another process. The memory stays valid until the Mapping is closed, even if
// the other process frees the segment or ends. To ensure this, Map requires the seals of the
// audience (else [ErrSeals] or [ErrAudience]) and the given size (else [ErrSize]). Map fails with
// [ErrLimit] if there are too many mappings. A call that fails releases all it acquired.
//
// Memory with a Handle has no seals. The driver decides how long it stays valid.
func Map(a Attachment) (*Mapping, error) {
	const op = "Map"
	if err := a.check(op); err != nil {
		return nil, err
	}
	if a.Handle != nil {
		return a.open(op)
	}
	m, c, err := newMapping(op, a.Queue, a.Kind, cost{})
	if err != nil {
		return nil, err
	}
	m.readOnly = a.ReadOnly
	m.region, err = newRegion(m.usm, uintptr(a.Size), sysmem.PageSize)
	if err == nil {
		if err = a.cover(&m.region); err != nil {
			if !m.region.end() {
				c.mappings = 0 // still mapped, so still counted
			}
		}
	}
	if err != nil {
		spent.giveBack(c)
		closeUSM(m.usm)
		return nil, failed(op, err)
	}
	return m, nil
}

// check validates the fields and the descriptor before anything is mapped.
func (a *Attachment) check(op string) error {
	if err := a.Audience.check(op); err != nil {
		return err
	}
	if a.Audience == PeersRead && !a.ReadOnly {
		return opError(op, ErrAudience, "memory for %q cannot be mapped for writing; set ReadOnly", a.Audience)
	}
	if (a.File == nil) == (a.Handle == nil) {
		return opError(op, memmgr.ErrRequest, "set exactly one of File and Handle")
	}
	if a.Size == 0 || a.Size > uint64(maxSize) || a.Size%uint64(sysmem.PageSize) != 0 {
		return opError(op, ErrSize, "invalid size of %d bytes; a segment has whole pages of %d bytes", a.Size, sysmem.PageSize)
	}
	if a.Handle != nil {
		return a.checkHandle(op)
	}
	return withFile(op, a.File, func(fd int) error { return a.inspect(op, fd) })
}

// maxSize is the largest size of a mapping, in bytes. It keeps sums of sizes from overflowing.
const maxSize = ^uintptr(0) >> 2

// withFile calls f with the descriptor, which stays open for the call.
func withFile(op string, file *os.File, f func(fd int) error) error {
	c, err := file.SyscallConn()
	if err != nil {
		return opError(op, memmgr.ErrClosed, "File: %w", err)
	}
	var inner error
	if err := c.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return opError(op, memmgr.ErrClosed, "File: %w", err)
	}
	return inner
}

// inspect checks that a descriptor has the seals of the audience and the size.
func (a *Attachment) inspect(op string, fd int) error {
	seals, err := fileSeals(fd)
	if err != nil {
		return opError(op, ErrSeals, "the descriptor is not a memory file: %w", err)
	}
	fixed := PeersWrite.seals()
	if seals&fixed != fixed {
		return opError(op, ErrSeals, "a peer can change its size (got seals %#x, want %#x)", seals, fixed)
	}
	found := PeersWrite
	if seals&(sealWrite|sealFutureWrite) != 0 {
		found = PeersRead
	}
	if found != a.Audience {
		return opError(op, ErrAudience, "got %q (seals %#x), want %q", found, seals, a.Audience)
	}
	size, err := pagedFileSize(fd)
	if err != nil {
		return opError(op, ErrSeals, "%w", err)
	}
	if size != a.Size {
		return opError(op, ErrSize, "got %d bytes, want %d", size, a.Size)
	}
	return nil
}

// newMapping returns a Mapping without a region, in USM of a queue or in host memory. Its cost is that of a region and
// more. The caller closes its usm, and gives the cost back.
func newMapping(op string, q *syclobj.Queue, kind syclobj.USMKind, more cost) (*Mapping, cost, error) {
	m := &Mapping{place: syclobj.HostPlace()}
	if q != nil && !q.IsHost() {
		usm, handles, err := shareable(op, q, kind)
		if err != nil {
			return nil, cost{}, err
		}
		if handles {
			closeUSM(usm)
			return nil, cost{}, opError(op, errors.ErrUnsupported, "a file cannot be mapped over %v", usm.Place())
		}
		m.place, m.usm = usm.Place(), usm
	}
	c := cost{mappingsOf(m.usm) + more.mappings, more.descriptors}
	if err := spent.take(op, c); err != nil {
		closeUSM(m.usm)
		return nil, cost{}, err
	}
	return m, c, nil
}

// cover maps the file over the region.
func (a *Attachment) cover(r *region) error {
	if err := withFile("Map", a.File, func(fd int) error { return r.cover(fd, a.ReadOnly) }); err != nil {
		return err
	}
	return dontFork(r.base, r.size)
}

// Data returns the address of the first byte.
func (m *Mapping) Data() unsafe.Pointer {
	if m.foreign != nil {
		return pointer(m.region.base + m.foreign.shift)
	}
	return pointer(m.region.base)
}

// Size returns the size of the segment, or Foreign.Size for memory of [MapForeign], in bytes.
func (m *Mapping) Size() uint64 {
	if m.foreign != nil {
		return m.foreign.size
	}
	return uint64(m.region.size)
}

// ReadOnly reports whether writing to the memory faults.
func (m *Mapping) ReadOnly() bool { return m.readOnly }

// Place returns the place of the memory in this process. It is valid until Close.
func (m *Mapping) Place() *syclobj.Place { return m.place }

// Close unmaps the memory. The caller first makes sure that no code and no device work uses the
// memory. Close waits for calls of ReadAt and Err; later calls of these fail. Further calls of
// Close do nothing.
func (m *Mapping) Close() error {
	m.once.Do(func() {
		m.mu.Lock()
		m.closed = true
		m.mu.Unlock()
		var c cost
		if m.foreign != nil {
			c = m.foreign.end()
		}
		c.mappings += mappingsOf(m.region.usm)
		if !m.region.end() {
			c.mappings = 0 // still mapped, so still counted
		}
		spent.giveBack(c)
		closeUSM(m.usm)
		if m.region.opened != nil {
			m.region.opened.Release()
		}
	})
	return nil
}

// pointer converts the address of memory outside the Go heap.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
