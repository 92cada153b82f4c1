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
	"github.com/usmbridge/usmbridge/memmgr/internal/guard"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Foreign says which memory of others, which is no segment, [MapForeign] maps, and how.
type Foreign struct {
	// Name is that of POSIX shared memory (shm_open, shm_overview(7)), or of a block of
	// Python's multiprocessing.shared_memory: one name, with or without a slash before it.
	Name string
	// File, instead of Name, is a descriptor of such memory, or of a memory file. It is
	// borrowed: the caller closes it, right after MapForeign if it likes.
	File *os.File
	// Offset of the first byte in the memory, and Size, in bytes; neither need be a multiple of
	// anything. All of them must be there.
	Offset, Size uint64
	// ReadOnly maps the memory so that writing to it from this process faults.
	ReadOnly bool
	// Copy takes a copy of the bytes as they are now, in memory of this process: where there is
	// no guard, or the bytes must not change under a reader. ReadOnly must be set, and Queue
	// not.
	Copy bool
	// Owner decides whether memory of a user is mapped; an error refuses it. nil admits any
	// memory with a File, and with a Name that of this process's effective user. In a user
	// namespace the kernel reports the overflow uid (65534) for every user that has no id
	// there: with a Name nil does not admit it unless the namespace has an id for every user.
	Owner func(uid uint32) error
	// Queue makes the memory USM of the queue's context, as [NewUSM] does and where that
	// works, of kind Kind. nil, or a queue of the host backend: memory of the host.
	Queue *syclobj.Queue
	Kind  syclobj.USMKind
	// MaxMappings is [WithMaxMappings] for this mapping.
	MaxMappings int
}

// foreign is what a Mapping has of such memory. Nothing changes until the mapping's end, for
// which nobody looks any more.
type foreign struct {
	file   *os.File // the mapping's own; nil for a copy
	offset uint64   // of the first byte in the file
	size   uint64   // bytes
	shift  uintptr  // of the first byte in its page

	guarded bool
	guard   guard.Range
}

// fileFacts are what the kernel tells of a descriptor.
type fileFacts struct {
	size      uint64
	uid       uint32
	mode      os.FileMode
	memory    bool // of ordinary pages, and no file of a disk
	unchanged bool // sealed: nobody can cut it off
}

// MapForeign maps memory of others that is no segment: POSIX shared memory by its name, or
// what a descriptor gives. It may be mapped as often as one likes, any part of it, and the
// mappings know nothing of each other.
//
// Nothing seals such memory, so anybody who may write to it can cut it off at any time, and
// touching what is gone ends a process (SIGBUS). Here it is mapped under a guard: whoever
// touches it, in Go, in C, or a driver on a thread of its own, sees zeros there and behind,
// and goes on; [Mapping.Err] tells then, and whoever trusts what was read asks it first.
// What is written after that reaches nobody. The guard is a handler of SIGBUS, which is
// installed by the first mapping and stays; faults elsewhere go on to the handler that was
// there. A system call to which such memory is given fails with EFAULT instead, and a thread of C
// that has SIGBUS blocked is out of its reach: touching what is gone there ends the process. Builds
// without cgo have no guard: memory that is not sealed against shrinking is then refused with
// errors.ErrUnsupported, unless Copy is set.
//
// Errors: memmgr.ErrRequest for what makes no sense, fs.ErrNotExist, [ErrRefused] for other
// users' memory, for links, and for what is no memory, [ErrSize] for no bytes at all and for
// bytes that are not there, [ErrLimit]. Nothing is left behind by one that fails.
func MapForeign(f Foreign) (*Mapping, error) {
	const op = "MapForeign"
	if err := f.check(op); err != nil {
		return nil, err
	}
	m := &Mapping{readOnly: f.ReadOnly, place: syclobj.HostPlace()}
	usm, err := (&Attachment{Queue: f.Queue, Kind: f.Kind}).usm(op)
	if err != nil {
		return nil, err
	}
	if usm != nil {
		m.place, m.usm = usm.Place(), usm
	}
	c := foreignCost(usm)
	if err := spent.take(op, c, bounds{mappings: f.MaxMappings}.filled()); err != nil {
		closeUSM(usm)
		return nil, err
	}
	if err := f.mapInto(op, m, &c); err != nil {
		spent.giveBack(c)
		closeUSM(usm)
		return nil, failed(op, err)
	}
	return m, nil
}

// foreignCost is what such memory takes: the part that was cut off is a mapping besides. A copy
// has neither that nor the descriptor, once it is filled.
func foreignCost(usm memmgr.Resource) cost {
	return cost{mappings: mappingsOf(usm) + 1, descriptors: 1}
}

// check refuses what makes no sense before anything is opened.
func (f *Foreign) check(op string) error {
	switch {
	case (f.File == nil) == (f.Name == ""):
		return opError(op, memmgr.ErrRequest, "one of Name and File must be given")
	case f.Size == 0:
		return opError(op, ErrSize, "no bytes are asked for")
	case f.Size > uint64(maxSize) || f.Offset > uint64(maxSize):
		return opError(op, ErrSize, "%d bytes from %d on are more than can be mapped", f.Size, f.Offset)
	case f.Copy && !f.ReadOnly:
		return opError(op, memmgr.ErrRequest, "a copy that is written to reaches nobody; set ReadOnly")
	case f.Copy && f.Queue != nil && !f.Queue.IsHost():
		return opError(op, memmgr.ErrRequest, "Copy is memory of the host; without a Queue it can be copied on")
	case f.File == nil:
		return checkName(op, f.Name)
	}
	return nil
}

// maxName is the longest name of a file.
const maxName = 255

// checkName wants one name, of a file in the one directory.
func checkName(op, name string) error {
	bare := strings.TrimPrefix(name, "/")
	if bare == "" || len(bare) > maxName || bare == "." || bare == ".." || strings.ContainsAny(bare, "/\x00") {
		return opError(op, memmgr.ErrRequest, "%q is no name of shared memory: 1 to %d bytes, none of them a slash but for the first", name, maxName)
	}
	return nil
}

// mapInto opens, looks and maps. On an error c is what is given back.
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
	shift := uintptr(f.Offset) % pageSize
	own := &foreign{file: file, offset: f.Offset, size: f.Size, shift: shift}
	if !f.Copy && !facts.unchanged && !guard.Supported {
		return opError(op, errors.ErrUnsupported, "memory that others can cut off is mapped under a guard alone, which needs cgo; set Copy to have its bytes")
	}
	if m.region, err = newRegion(m.usm, roundUp(shift+uintptr(f.Size), pageSize), pageSize); err != nil {
		return err
	}
	m.region.offset = f.Offset - uint64(shift)
	defer func() {
		if err != nil && !m.region.end() {
			c.mappings = 0 // they stay
		}
	}()
	if f.Copy {
		m.foreign = own
		if err = m.fill(); err == nil {
			spare := foreignCost(nil)
			spare.mappings -= mappingsOf(nil)
			spent.giveBack(spare)
		}
		return err
	}
	// Guarded before the file is there, so that nobody sees it without.
	if !facts.unchanged {
		if own.guard, err = guard.Add(m.region.base, m.region.size, !f.ReadOnly); err != nil {
			if errors.Is(err, guard.ErrFull) {
				err = opError(op, ErrLimit, "%w; close mappings, or map larger parts", err)
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
		err = notForChildren(m.region.base, m.region.size)
	}
	if forbidden(err) {
		err = opError(op, ErrRefused, "the descriptor is not for what was asked (read-only %v): %w", f.ReadOnly, err)
	}
	if err == nil {
		m.foreign = own
	}
	return err
}

// open gives a descriptor of the mapping's own, of memory that may be mapped.
func (f *Foreign) open(op string) (file *os.File, facts fileFacts, err error) {
	fd := -1
	if f.File != nil {
		err = withFile(op, f.File, func(theirs int) (err error) {
			fd, err = duplicate(theirs)
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

// admit looks whether it is memory, whose it is, and whether all that is asked for is there.
func (f *Foreign) admit(op string, facts fileFacts) error {
	if !facts.memory {
		return opError(op, ErrRefused, "%s is no memory of ordinary pages, but %v, or a file of a disk", f.what(), facts.mode)
	}
	owner := f.Owner
	if owner == nil && f.File == nil {
		owner = sameUser
	}
	if owner != nil {
		if err := owner(facts.uid); err != nil {
			return opError(op, ErrRefused, "%s belongs to user %d: %w", f.what(), facts.uid, err)
		}
	}
	if f.Offset > facts.size || f.Size > facts.size-f.Offset {
		return opError(op, ErrSize, "%d bytes from %d on are asked for, and %s has %d", f.Size, f.Offset, f.what(), facts.size)
	}
	return nil
}

func (f *Foreign) what() string {
	if f.File != nil {
		return "the descriptor"
	}
	return fmt.Sprintf("%q", f.Name)
}

func sameUser(uid uint32) error {
	if err := userid.CheckOwn(uid); err != nil {
		return fmt.Errorf("%w; Foreign.Owner can admit others", err)
	}
	return nil
}

// fill copies the bytes, and lets go of what they were copied from.
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
	if err := notForChildren(m.region.base, m.region.size); err != nil { // as all Mappings
		return err
	}
	_ = f.file.Close() // of memory: nothing is written that could fail
	f.file = nil
	return nil
}

// end closes what the memory was opened with, and tells what it cost. The region is there.
func (f *foreign) end(usm memmgr.Resource) cost {
	if f.file == nil {
		return cost{mappings: mappingsOf(usm)}
	}
	if f.guarded {
		f.guard.Remove()
	}
	_ = f.file.Close() // of memory: nothing is written that could fail
	return foreignCost(usm)
}

// Err tells whether the memory is still what it was: [ErrTruncated] when another process cut
// it off, which is so for ever once it was noticed, memmgr.ErrClosed after Close. Ask it
// after reading, before what was read is trusted, and after writing. Until Close it is nil for
// segments, which nobody can cut off, and for copies. It also puts the guard back over handlers that
// were installed since. It takes two system calls.
func (m *Mapping) Err() error {
	const op = "Mapping.Err"
	m.mu.RLock()
	defer m.mu.RUnlock()
	f := m.foreign
	switch {
	case m.closed:
		return opError(op, memmgr.ErrClosed, "the mapping was closed")
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
	switch there := facts.size - min(facts.size, f.offset); {
	case there < f.size && lost:
		return opError(op, ErrTruncated, "%d of %d bytes are there; others were touched, and are zeros now", there, f.size)
	case there < f.size:
		return opError(op, ErrTruncated, "%d of %d bytes are there", there, f.size)
	case lost:
		return opError(op, ErrTruncated, "some of the %d bytes could not be had when they were touched, and are zeros now: "+
			"the memory is full or broken, or it was cut off and made longer again", f.size)
	}
	return nil
}

// ReadAt implements io.ReaderAt: it copies bytes from an offset in the memory on. Of memory
// that others can cut off it reads the file, so that it needs no guard and tells at once, by
// [ErrTruncated], what is not there any more; of a copy, the copy. Memory that the host cannot
// read fails with errors.ErrUnsupported, and after Close it is memmgr.ErrClosed.
func (m *Mapping) ReadAt(p []byte, off int64) (n int, err error) {
	const op = "Mapping.ReadAt"
	if off < 0 {
		return 0, opError(op, memmgr.ErrRequest, "an offset of %d", off)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return 0, opError(op, memmgr.ErrClosed, "the mapping was closed")
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

// readAt reads the file.
func (f *foreign) readAt(op string, p []byte, off uint64) (int, error) {
	n, err := f.file.ReadAt(p, int64(f.offset+off))
	switch {
	case errors.Is(err, io.EOF):
		return n, opError(op, ErrTruncated, "%d of %d bytes from %d on are there", n, len(p), off)
	case err != nil:
		return n, &OpError{Op: op, Err: err}
	}
	return n, nil
}
