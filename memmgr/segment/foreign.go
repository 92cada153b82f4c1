package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/userid"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/memmgr/segment/internal/guard"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Foreign describes the memory that [MapForeign] maps. The memory belongs to another program and
// is not a segment.
type Foreign struct {
	// Name is the name of POSIX shared memory (shm_open, shm_overview(7)) or of a block of
	// Python's multiprocessing.shared_memory. A leading slash is optional.
	Name string
	// File is a descriptor of such memory or of a memory file. Set either Name or File.
	// MapForeign duplicates the descriptor; the caller may close it after the call.
	File *os.File
	// Offset is the position of the first byte in the memory, and Size the number of bytes to
	// map. Neither needs to be aligned. All of the bytes must exist.
	Offset, Size uint64
	// ReadOnly maps the memory so that writing to it from this process faults.
	ReadOnly bool
	// Copy copies the bytes into private memory instead of mapping them. Use it where there is
	// no guard, or where the bytes must not change while they are read. It requires ReadOnly,
	// and a Queue that is nil or of the host backend.
	Copy bool
	// Owner reports whether memory that belongs to a user may be mapped; a non-nil error refuses
	// it. If Owner is nil, a File may belong to any user, and a Name must belong to this
	// process's effective user. In a user namespace the kernel reports the overflow uid (65534)
	// for every user that has no id there. Memory of that uid is refused unless the namespace maps
	// every user, except a File without Owner.
	Owner func(uid uint32) error
	// Queue makes the memory USM of kind Kind in the queue's context, on devices where [NewUSM]
	// can do so without handles. With nil or a queue of the host backend it is host memory.
	Queue *syclobj.Queue
	Kind  syclobj.USMKind
}

// foreign is the part of a Mapping that only [MapForeign] sets. It is immutable until Close, and
// not read after Close.
type foreign struct {
	file   *os.File // owned by the mapping; nil for a copy
	offset uint64   // of the first byte in the file
	size   uint64   // bytes
	shift  uintptr  // of the first byte in its page

	guarded bool
	guard   guard.Range
}

// fileFacts are the properties of a descriptor that the kernel reports.
type fileFacts struct {
	size      uint64
	uid       uint32
	mode      uint32 // st_mode: type and permissions (inode(7))
	memory    bool   // a regular file on tmpfs, without huge pages
	unchanged bool   // sealed against shrinking
}

// MapForeign maps memory of another program that is not a segment: POSIX shared memory, by its
// name or by a descriptor. The same memory can be mapped any number of times, whole or in parts.
// The mappings are independent of each other.
//
// Such memory is not sealed, so any process that may write to it can truncate it at any time.
// Access to a truncated page normally ends the process (SIGBUS). MapForeign therefore installs a
// guard. After an access to a truncated page, from Go, from C or from a thread of a driver, that
// page and all pages after it read as zeros, and the access continues. Later writes to these pages
// do not reach other processes. [Mapping.Err] reports the truncation: call it before trusting
// bytes that were read.
//
// The guard is a SIGBUS handler. The first mapping installs it, and it stays installed. It passes
// faults at other addresses on to the previous handler. Two cases are not covered: a system call
// that accesses a truncated page fails with EFAULT, and an access from a C thread that blocks
// SIGBUS ends the process. Builds without cgo have no guard; they refuse memory that is not sealed
// against shrinking with errors.ErrUnsupported, unless Copy is set.
//
// Errors: memmgr.ErrRequest if f is inconsistent; fs.ErrNotExist; [ErrRefused] for links, for
// files that are not memory and for memory of a user that is not admitted; [ErrSize] if Size is 0
// or some of the bytes do not exist; [ErrLimit]. A call that fails releases all it acquired.
func MapForeign(f Foreign) (*Mapping, error) {
	const op = "MapForeign"
	if err := f.check(op); err != nil {
		return nil, err
	}
	m, c, err := newMapping(op, f.Queue, f.Kind, foreignCost)
	if err != nil {
		return nil, err
	}
	m.readOnly = f.ReadOnly
	if err := f.mapInto(op, m, &c); err != nil {
		spent.giveBack(c)
		closeUSM(m.usm)
		return nil, failed(op, err)
	}
	return m, nil
}

// foreignCost is the cost of a mapping of foreign memory beside its region. The guard replaces truncated pages,
// which makes them a mapping of their own. A copy needs neither that mapping nor the descriptor
// once it is filled.
var foreignCost = cost{mappings: 1, descriptors: 1}

// check validates the fields before anything is opened.
func (f *Foreign) check(op string) error {
	switch {
	case (f.File == nil) == (f.Name == ""):
		return opError(op, memmgr.ErrRequest, "set exactly one of Name and File")
	case f.Size == 0:
		return opError(op, ErrSize, "Size is 0")
	case f.Size > uint64(maxSize) || f.Offset > uint64(maxSize):
		return opError(op, ErrSize, "%d bytes at offset %d exceed the address space", f.Size, f.Offset)
	case f.Copy && !f.ReadOnly:
		return opError(op, memmgr.ErrRequest, "writes to a copy do not reach other processes; set ReadOnly")
	case f.Copy && f.Queue != nil && !f.Queue.IsHost():
		return opError(op, memmgr.ErrRequest, "Copy makes host memory; leave Queue nil and copy from there to the device")
	case f.File == nil:
		return checkName(op, f.Name)
	}
	return nil
}

// maxName is the longest name of a file.
const maxName = 255

// checkName checks that a name is a single file name, so that it cannot leave sharedDirectory.
func checkName(op, name string) error {
	bare := strings.TrimPrefix(name, "/")
	if bare == "" || len(bare) > maxName || bare == "." || bare == ".." || strings.ContainsAny(bare, "/\x00") {
		return opError(op, memmgr.ErrRequest, "invalid name of shared memory %q; use 1 to %d bytes without a slash, except a leading one", name, maxName)
	}
	return nil
}

// mapInto opens the memory and maps it into m. If it fails, it sets c to the cost that the caller
// returns to the budget.
func (f *Foreign) mapInto(op string, m *Mapping, c *cost) (err error) {
	file, facts, err := f.open(op)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	shift := uintptr(f.Offset) % sysmem.PageSize
	own := &foreign{file: file, offset: f.Offset, size: f.Size, shift: shift}
	if !f.Copy && !facts.unchanged && !guard.Supported {
		return opError(op, errors.ErrUnsupported, "the memory is not sealed against shrinking, and the guard against truncation needs cgo; set Copy")
	}
	if m.region, err = newRegion(m.usm, sysmem.RoundUp(shift+uintptr(f.Size), sysmem.PageSize), sysmem.PageSize); err != nil {
		return err
	}
	m.region.offset = f.Offset - uint64(shift)
	defer func() {
		if err != nil && !m.region.end() {
			c.mappings = 0 // still mapped, so still counted
		}
	}()
	if f.Copy {
		m.foreign = own
		if err = m.fill(); err == nil {
			spent.giveBack(foreignCost)
		}
		return err
	}
	// Add the guard before the file is mapped, so that the mapping is never unguarded.
	if !facts.unchanged {
		if own.guard, err = guard.Add(m.region.base, m.region.size, !f.ReadOnly); err != nil {
			if errors.Is(err, guard.ErrFull) {
				err = opError(op, ErrLimit, "%w; close mappings, or map fewer and larger parts", err)
			}
			return err
		}
		own.guarded = true
		defer func() {
			if err != nil {
				own.guard.Remove()
			}
		}()
	}
	if err = m.region.cover(int(file.Fd()), f.ReadOnly); err == nil {
		err = dontFork(m.region.base, m.region.size)
	}
	if forbidden(err) {
		err = opError(op, ErrRefused, "the descriptor does not permit this access (read-only %v): %w", f.ReadOnly, err)
	}
	if err == nil {
		m.foreign = own
	}
	return err
}

// open returns a descriptor that the mapping owns, of memory that may be mapped.
func (f *Foreign) open(op string) (file *os.File, facts fileFacts, err error) {
	fd := -1
	if f.File != nil {
		err = withFile(op, f.File, func(borrowed int) (err error) {
			fd, err = duplicate(borrowed)
			return err
		})
	} else if fd, err = openNamed(strings.TrimPrefix(f.Name, "/"), f.ReadOnly); forbidden(err) {
		err = opError(op, ErrRefused, "%q: %w", f.Name, err)
	}
	if err != nil {
		return nil, facts, err
	}
	if facts, err = factsOf(fd); err == nil {
		err = f.admit(op, facts)
	}
	if err != nil {
		closeFile(fd)
		return nil, facts, err
	}
	return os.NewFile(uintptr(fd), fileName), facts, nil
}

// admit checks that the file is memory, that its owner is admitted, and that it has all bytes.
func (f *Foreign) admit(op string, facts fileFacts) error {
	if !facts.memory {
		return opError(op, ErrRefused, "%s (mode %#o) is not memory of ordinary pages", f.source(), facts.mode)
	}
	owner := f.Owner
	if owner == nil && f.File == nil {
		owner = sameUser
	}
	if owner != nil {
		err := userid.CheckOne(facts.uid)
		if err == nil {
			err = owner(facts.uid)
		}
		if err != nil {
			return opError(op, ErrRefused, "%s belongs to user %d: %w", f.source(), facts.uid, err)
		}
	}
	if f.Offset > facts.size || f.Size > facts.size-f.Offset {
		return opError(op, ErrSize, "%s has %d bytes (want %d bytes at offset %d)", f.source(), facts.size, f.Size, f.Offset)
	}
	return nil
}

// source names the memory in errors.
func (f *Foreign) source() string {
	if f.File != nil {
		return "the descriptor"
	}
	return fmt.Sprintf("%q", f.Name)
}

func sameUser(uid uint32) error {
	if err := userid.CheckOwn(uid); err != nil {
		return fmt.Errorf("%w; set Foreign.Owner to admit other users", err)
	}
	return nil
}

// fill copies the bytes of the file into the region and closes the file.
func (m *Mapping) fill() error {
	if err := mapAnonymous(m.region.base, m.region.size); err != nil {
		return err
	}
	f := m.foreign
	if _, err := f.readAt("MapForeign", unsafe.Slice((*byte)(m.Data()), f.size), 0); err != nil {
		return err
	}
	if err := protect(m.region.base, m.region.size); err != nil {
		return err
	}
	if err := dontFork(m.region.base, m.region.size); err != nil {
		return err
	}
	_ = f.file.Close() // a memory file has no delayed writes that could fail
	f.file = nil
	return nil
}

// end removes the guard, closes the file and returns the cost of both. The caller releases the region afterwards.
func (f *foreign) end() cost {
	if f.file == nil {
		return cost{}
	}
	if f.guarded {
		f.guard.Remove()
	}
	_ = f.file.Close() // a memory file has no delayed writes that could fail
	return foreignCost
}

// Err reports whether the memory is still complete. It returns [ErrTruncated] if another process
// truncated the memory, and memmgr.ErrClosed after Close. Call it after reading, before the bytes
// are trusted, and after writing. After an access to a missing byte, which reads zeros, Err fails
// until Close. Segments, which are sealed, and copies have no error before Close.
//
// Err also reinstalls the guard if another SIGBUS handler has replaced it. It makes two system
// calls.
func (m *Mapping) Err() error {
	const op = "Mapping.Err"
	m.mu.RLock()
	defer m.mu.RUnlock()
	f := m.foreign
	switch {
	case m.closed:
		return opError(op, memmgr.ErrClosed, "the mapping is closed")
	case f == nil || f.file == nil:
		return nil
	}
	lost := f.guarded && f.guard.Lost()
	if f.guarded && !lost {
		if err := guard.Keep(); err != nil {
			return &OpError{Op: op, Err: err}
		}
	}
	facts, err := factsOf(int(f.file.Fd()))
	if err != nil {
		return &OpError{Op: op, Err: err}
	}
	switch left := facts.size - min(facts.size, f.offset); {
	case left < f.size && lost:
		return opError(op, ErrTruncated, "%d of %d bytes are left; missing bytes were accessed and read as zeros", left, f.size)
	case left < f.size:
		return opError(op, ErrTruncated, "%d of %d bytes are left", left, f.size)
	case lost:
		return opError(op, ErrTruncated, "some of the %d bytes were missing when they were accessed, and read as zeros: "+
			"memory is full or broken, or the file was truncated and extended again", f.size)
	}
	return nil
}

// ReadAt implements io.ReaderAt for the bytes of the mapping. For memory of [MapForeign] it reads
// the file instead of the mapping, so it does not depend on the guard and returns [ErrTruncated]
// if bytes are missing. It fails with errors.ErrUnsupported if the host cannot read the memory,
// and with memmgr.ErrClosed after Close.
func (m *Mapping) ReadAt(p []byte, off int64) (n int, err error) {
	const op = "Mapping.ReadAt"
	if off < 0 {
		return 0, opError(op, memmgr.ErrRequest, "negative offset %d", off)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return 0, opError(op, memmgr.ErrClosed, "the mapping is closed")
	}
	size := m.Size()
	if uint64(off) >= size {
		return 0, io.EOF
	}
	if rest := size - uint64(off); uint64(len(p)) > rest {
		p, err = p[:rest], io.EOF
	}
	if f := m.foreign; f != nil && f.file != nil {
		n, got := f.readAt(op, p, uint64(off))
		if got != nil {
			err = got
		}
		return n, err
	}
	if !m.place.HostReadable() {
		return 0, opError(op, errors.ErrUnsupported, "the host cannot read %v; copy it with a queue", m.place)
	}
	return copy(p, unsafe.Slice((*byte)(m.Data()), size)[off:]), err
}

func (f *foreign) readAt(op string, p []byte, off uint64) (int, error) {
	n, err := f.file.ReadAt(p, int64(f.offset+off))
	switch {
	case errors.Is(err, io.EOF):
		return n, opError(op, ErrTruncated, "%d of %d bytes at offset %d are left", n, len(p), off)
	case err != nil:
		return n, &OpError{Op: op, Err: err}
	}
	return n, nil
}
