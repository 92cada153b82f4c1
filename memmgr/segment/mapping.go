package segment

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Attachment says which memory of another process [Map] maps, and how.
type Attachment struct {
	// File is the descriptor that [Segment.File] gave in the other process. It is
	// borrowed: the caller closes it, right after Map if it likes.
	File *os.File
	// Handle, instead of File, is what [Segment.Handle] gave there. Queue is needed then;
	// the memory is of kind USMDevice on its device. It goes to the driver as it is:
	// take it from peers alone that may be trusted with the device.
	Handle []byte
	// Size in bytes and Audience, as the other process told them. Memory that is
	// anything else is refused.
	Size     uint64
	Audience Audience
	// ReadOnly maps the memory so that writing to it from this process faults: a
	// must for PeersRead. On PeersWrite it protects from accidents, not from intent,
	// since the descriptor can be opened again for writing; memory with a Handle has
	// no protection at all.
	ReadOnly bool
	// Queue makes the memory USM of the queue's context, as [NewUSM] does and where
	// that works, of kind Kind. nil, or a queue of the host backend: memory of the host.
	Queue *syclobj.Queue
	Kind  syclobj.USMKind
	// MaxMappings is [WithMaxMappings] for this mapping.
	MaxMappings int
}

// Mapping is memory of another process in this one. It is not inherited by forked
// children, for whom the addresses are unmapped. Its methods may be called from any
// goroutine.
type Mapping struct {
	region   region
	readOnly bool
	place    *syclobj.Place
	usm      memmgr.Resource // that the memory lies over; nil for none
	once     sync.Once
	foreign  *foreign // what it is of memory that is no segment; nil otherwise

	mu     sync.RWMutex // held by ReadAt and Err while they look
	closed bool
}

// Map maps a segment of another process. Nothing that the other process does later
// can take the memory from under a reader: Map looks first whether the memory is
// sealed for its audience (else [ErrSeals], [ErrAudience]) and has the size that was
// told ([ErrSize]). It fails with [ErrLimit] when there are too many mappings, and
// leaves nothing behind when it fails.
//
// The memory stays as long as the Mapping is open, whatever becomes of the other
// process.
func Map(a Attachment) (*Mapping, error) {
	const op = "Map"
	if err := a.check(op); err != nil {
		return nil, err
	}
	if a.Handle != nil {
		return a.open(op)
	}
	m := &Mapping{readOnly: a.ReadOnly, place: syclobj.HostPlace()}
	usm, err := a.usm(op)
	if err != nil {
		return nil, err
	}
	if usm != nil {
		m.place, m.usm = usm.Place(), usm
	}
	c := cost{mappings: mappingsOf(usm)}
	if err := spent.take(op, c, bounds{mappings: a.MaxMappings}.filled()); err != nil {
		closeUSM(m.usm)
		return nil, err
	}
	m.region, err = newRegion(usm, uintptr(a.Size), pageSize)
	if err == nil {
		if err = a.cover(&m.region); err != nil {
			if !m.region.end() {
				c.mappings = 0 // they stay
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

// check refuses what makes no sense before anything is opened.
func (a *Attachment) check(op string) error {
	if err := a.Audience.check(op); err != nil {
		return err
	}
	if a.Audience == PeersRead && !a.ReadOnly {
		return opError(op, ErrAudience, "memory for %q is mapped to be written; set ReadOnly", a.Audience)
	}
	if (a.File == nil) == (a.Handle == nil) {
		return opError(op, memmgr.ErrRequest, "one of File and Handle must be given")
	}
	if a.Size == 0 || a.Size > uint64(maxSize) || a.Size%uint64(pageSize) != 0 {
		return opError(op, ErrSize, "%d bytes are no segment, which has whole pages of %d bytes", a.Size, pageSize)
	}
	if a.Handle != nil {
		return a.checkHandle(op)
	}
	return withFile(op, a.File, func(fd int) error { return a.inspect(op, fd) })
}

// maxSize is the largest size of a segment that is taken from another process.
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

// inspect looks whether a descriptor is what was told.
func (a *Attachment) inspect(op string, fd int) error {
	seals, err := fileSeals(fd)
	if err != nil {
		return opError(op, ErrSeals, "the descriptor is no memory file: %w", err)
	}
	fixed := PeersWrite.seals()
	if seals&fixed != fixed {
		return opError(op, ErrSeals, "its seals are %#x, and %#x are needed so that it cannot be cut off", seals, fixed)
	}
	found := PeersWrite
	if seals&(sealWrite|sealFutureWrite) != 0 {
		found = PeersRead
	}
	if found != a.Audience {
		return opError(op, ErrAudience, "its seals %#x are those of %q, and %q was told", seals, found, a.Audience)
	}
	size, err := pagedFileSize(fd)
	if err != nil {
		return opError(op, ErrSeals, "%w", err)
	}
	if size != a.Size {
		return opError(op, ErrSize, "it has %d bytes, and %d were told", size, a.Size)
	}
	return nil
}

// usm makes the resource of USM that the memory is to lie over, nil for none.
func (a *Attachment) usm(op string) (memmgr.Resource, error) {
	if a.Queue == nil || a.Queue.IsHost() {
		return nil, nil
	}
	usm, handles, err := shareable(op, a.Queue, a.Kind)
	if err == nil && handles {
		closeUSM(usm)
		return nil, opError(op, errors.ErrUnsupported, "no file can be laid over %v", usm.Place())
	}
	return usm, err
}

// cover maps the file over the region.
func (a *Attachment) cover(r *region) error {
	if err := withFile("Map", a.File, func(fd int) error { return r.cover(fd, a.ReadOnly) }); err != nil {
		return err
	}
	return notForChildren(r.base, r.size)
}

// Data returns the address of the first byte.
func (m *Mapping) Data() unsafe.Pointer {
	if m.foreign != nil {
		return pointer(m.region.base + m.foreign.shift)
	}
	return pointer(m.region.base)
}

// Size returns the bytes of the segment, or those that were asked for ([MapForeign]).
func (m *Mapping) Size() uint64 {
	if m.foreign != nil {
		return m.foreign.size
	}
	return uint64(m.region.size)
}

// ReadOnly reports whether writing to the memory faults.
func (m *Mapping) ReadOnly() bool { return m.readOnly }

// Place tells the facts of the memory in this process. It is valid while the Mapping is
// open.
func (m *Mapping) Place() *syclobj.Place { return m.place }

// Close unmaps the memory; nobody may use it any more, and work on it must be done.
// It waits for ReadAt and Err, which fail from then on, and may be called again.
func (m *Mapping) Close() error {
	m.once.Do(func() {
		m.mu.Lock()
		m.closed = true
		m.mu.Unlock()
		c := cost{mappings: mappingsOf(m.region.usm)}
		if m.foreign != nil {
			c = m.foreign.end(m.region.usm)
		}
		if !m.region.end() {
			c.mappings = 0 // they stay
		}
		spent.giveBack(c)
		closeUSM(m.usm)
		if m.region.opened != nil {
			m.region.opened.Release()
		}
	})
	return nil
}

// pointer is memory that the system mapped, at an address that no Go memory has.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
