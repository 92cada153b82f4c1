package region

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

// maxName is the longest name of a region, and of a key without its slash, in bytes.
const maxName = 255

// Options configure a Registry. With the zero Options, only clients of Unix sockets register
// regions, under any key, as memory of the host.
type Options struct {
	// Prefix is the prefix of all keys, after an optional slash. A key must be longer.
	// Without a prefix, clients of a network cannot register regions. CheckPrefix validates it.
	Prefix string
	// MaxRegions bounds the number of regions, MaxBytes the sum of their whole pages in bytes,
	// whether the client has allocated them or not: a page that does not exist yet, or was removed
	// again, is charged to this process when it touches it. 0 means 256 regions and 64 GiB.
	MaxRegions int
	MaxBytes   uint64
	// Queue makes regions USM of kind Kind in the context of the queue where that works, and
	// memory of the host elsewhere. nil: memory of the host. The queue is borrowed until Close.
	Queue *syclobj.Queue
	Kind  syclobj.USMKind
}

// Info describes a region as its client registered it. The JSON is that of Triton's extension.
type Info struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Offset uint64 `json:"offset"`    // of the first byte in the shared memory
	Size   uint64 `json:"byte_size"` // bytes
}

// Registry knows the regions that clients have registered. Its methods may be called from any
// goroutine; their errors are *oip.Error.
type Registry struct {
	options Options

	registering sync.Mutex // held by Register, which maps memory without mu, because system calls take time

	mu      sync.Mutex
	closed  bool              // the release of the last buffer of an entry removes it
	entries map[string]*entry // by name
}

// entry is a region. The registry's lock guards buffers; the other fields do not change.
type entry struct {
	info    Info
	charge  uint64 // bytes of its pages
	owner   uint32 // user of the memory
	mapping *segment.Mapping
	buffers int // in use
}

// New makes a registry without regions.
func New(o Options) *Registry {
	o.MaxRegions = cmp.Or(o.MaxRegions, 256)
	o.MaxBytes = cmp.Or(o.MaxBytes, 64<<30)
	return &Registry{options: o, entries: map[string]*entry{}}
}

// errNetwork is the error for a client of a network where keys have no prefix.
var errNetwork = oip.Errorf(oip.Unsupported, "system shared memory is not served over TCP without a prefix of its keys; "+
	"start the service with -shm-prefix (make serve SHM=prefix), or connect through a Unix socket")

// allows reports whether a client may use memory that belongs to the user owner. Clients of a Unix
// socket use memory of their own user, and no other: not of the user of this process, which may be
// root. Clients of a network, whose users are unknown, use memory of the user of this process, as
// far as Options.Prefix allows them any. MapForeign refuses memory of a user id that can stand for several users.
func (r *Registry) allows(from peercred.Client, owner uint32) bool {
	if from.Local {
		return from.Owns(owner)
	}
	return r.options.Prefix != "" && owner == uint32(os.Geteuid())
}

// Register maps size bytes of shared memory, beginning at offset, for a client, under a name of
// its choice. Errors: Unsupported for clients of a network without Options.Prefix; Invalid for invalid names and keys, for a name that is in use,
// for memory that does not exist or is not the client's to register, and for bytes that it does
// not have; Busy where a bound is reached; NotReady after Close.
func (r *Registry) Register(from peercred.Client, name, key string, offset, size uint64) error {
	if !from.Local && r.options.Prefix == "" {
		return errNetwork
	}
	if !isText(name) {
		return oip.Errorf(oip.Invalid, "%s is not a name of a region: want 1 to %d bytes of UTF-8 without control characters", oip.Quote(name), maxName)
	}
	bare, err := r.checkKey(key)
	if err != nil {
		return err
	}
	switch {
	case size == 0:
		return oip.Errorf(oip.Invalid, "region %s: a byte_size of 0", oip.Quote(name))
	case offset > math.MaxInt64 || size > math.MaxInt64-offset:
		return oip.Errorf(oip.Invalid, "region %s: offset %d and byte_size %d are too large", oip.Quote(name), offset, size)
	}
	e := &entry{info: Info{Name: name, Key: key, Offset: offset, Size: size}, charge: pages(offset, size)}
	r.registering.Lock()
	defer r.registering.Unlock()
	if err := r.room(e); err != nil {
		return err
	}
	if e.mapping, err = r.attach(from, e, bare); err != nil {
		return refusal(name, key, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed { // meanwhile
		_ = e.mapping.Close()
		return oip.ErrDraining
	}
	r.entries[name] = e
	return nil
}

// pages returns the bytes of the pages that size bytes from offset on touch; offset+size is at
// most math.MaxInt64.
func pages(offset, size uint64) uint64 {
	page := uint64(os.Getpagesize())
	return (offset+size+page-1)/page*page - offset/page*page
}

// room returns an error if the name of an entry is taken, or its place or pages exceed the bounds.
func (r *Registry) room(e *entry) error {
	_, used, _ := r.InUse()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return oip.ErrDraining
	}
	if _, taken := r.entries[e.info.Name]; taken {
		return oip.Errorf(oip.Invalid, "region %s is registered already; unregister it first, or use another name", oip.Quote(e.info.Name))
	}
	if len(r.entries) >= r.options.MaxRegions {
		return oip.Errorf(oip.Busy, "%d regions are registered, and no more than that may be; unregister some", len(r.entries))
	}
	if e.charge > r.options.MaxBytes {
		return oip.Errorf(oip.TooLarge, "region %s: its pages have %d bytes, and those of all regions together may have %d; start the service with a larger -limit",
			oip.Quote(e.info.Name), e.charge, r.options.MaxBytes)
	}
	if e.charge > r.options.MaxBytes-used {
		return oip.Errorf(oip.Busy, "region %s: its pages have %d bytes, and those of all regions together may have %d more; unregister some",
			oip.Quote(e.info.Name), e.charge, r.options.MaxBytes-used)
	}
	return nil
}

// errOwner refuses memory of users whose memory the client may not use.
var errOwner = errors.New("the client may not use memory of this user")

// attach maps the memory of an entry, as USM where that is requested and works.
func (r *Registry) attach(from peercred.Client, e *entry, key string) (*segment.Mapping, error) {
	owner := func(uid uint32) error { // of the descriptor that is mapped
		if e.owner = uid; !r.allows(from, uid) {
			return errOwner
		}
		return nil
	}
	f := segment.Foreign{Name: key, Offset: e.info.Offset, Size: e.info.Size, Owner: owner, Queue: r.options.Queue, Kind: r.options.Kind}
	m, err := segment.MapForeign(f)
	if f.Queue != nil && errors.Is(err, errors.ErrUnsupported) {
		f.Queue = nil
		m, err = segment.MapForeign(f)
	}
	return m, err
}

// refusal returns the error for the client for memory that was not mapped. Memory that does not exist
// and memory of another user have the same error, so that clients cannot probe names.
func refusal(name, key string, err error) error {
	e := &oip.Error{Kind: oip.Invalid, Err: err}
	switch {
	case errors.Is(err, segment.ErrSize):
		e.Message = fmt.Sprintf("region %s: the shared memory of key %s does not have the bytes that offset and byte_size name",
			oip.Quote(name), oip.Quote(key))
	case errors.Is(err, segment.ErrLimit), errors.Is(err, memmgr.ErrOutOfMemory):
		e.Kind = oip.Busy
		e.Message = "no more shared memory can be mapped at present; unregister regions that are not used"
	case errors.Is(err, errors.ErrUnsupported):
		e.Kind = oip.Unsupported
		e.Message = "shared memory cannot be mapped by this server"
	default:
		e.Message = fmt.Sprintf("region %s: there is no shared memory of key %s that may be registered", oip.Quote(name), oip.Quote(key))
	}
	return e
}

// isText reports whether a name can be part of messages and lists.
func isText(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// isFileName reports whether a name is one file name, which cannot lead out of its directory.
func isFileName(name string) bool {
	return isText(name) && name != "." && name != ".." && !strings.ContainsRune(name, '/')
}

// semaphores is the prefix of the names of POSIX semaphores, which lie beside shared memory.
const semaphores = "sem."

// CheckPrefix returns the prefix for Options, without a slash before it. It refuses a prefix with
// which no key could begin.
func CheckPrefix(prefix string) (string, error) {
	bare := strings.TrimPrefix(prefix, "/")
	if !isFileName(bare) || len(bare) == maxName || strings.HasPrefix(bare, semaphores) {
		return "", fmt.Errorf("%q is not a prefix of shared memory keys: want 1 to %d bytes without a slash or control character, not beginning with %q",
			prefix, maxName-1, semaphores)
	}
	return bare, nil
}

// checkKey returns a key without the slash before it. Errors: Invalid, for a key that is not one
// name or does not have the prefix.
func (r *Registry) checkKey(key string) (string, error) {
	bare := strings.TrimPrefix(key, "/")
	if !isFileName(bare) {
		return "", oip.Errorf(oip.Invalid, "%s is not a key of shared memory: want one file name of 1 to %d bytes, with or without a slash before it",
			oip.Quote(key), maxName)
	}
	rest, ok := strings.CutPrefix(bare, r.options.Prefix)
	if !ok || rest == "" || strings.HasPrefix(bare, semaphores) {
		wanted := `anything but "sem."`
		if r.options.Prefix != "" {
			wanted = oip.Quote(r.options.Prefix) + " and are longer"
		}
		return "", oip.Errorf(oip.Invalid, "shared memory of key %s may not be registered: keys begin with %s", oip.Quote(key), wanted)
	}
	return bare, nil
}

// get returns the region of a name, if the client may use it. Errors: NotFound. The lock is held.
func (r *Registry) get(from peercred.Client, name string) (*entry, error) {
	e := r.entries[name]
	if e == nil || !r.allows(from, e.owner) {
		return nil, oip.Errorf(oip.NotFound, "no region %s is registered", oip.Quote(name))
	}
	return e, nil
}

// find returns the region of a name or, if name is "", all that the client may use. Errors: NotFound. The
// lock is held.
func (r *Registry) find(from peercred.Client, name string) ([]*entry, error) {
	if name != "" {
		e, err := r.get(from, name)
		return []*entry{e}, err
	}
	var all []*entry
	for _, e := range r.entries {
		if r.allows(from, e.owner) {
			all = append(all, e)
		}
	}
	return all, nil
}

// Unregister unmaps a region that the client may use or, if name is "", all of them. A region in use
// stays: a buffer of it is left. Errors: NotFound, and InUse if a region stays.
func (r *Registry) Unregister(from peercred.Client, name string) error {
	r.mu.Lock()
	found, err := r.find(from, name)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	var idle []*entry
	used, buffers := 0, 0
	for _, e := range found {
		if e.buffers > 0 {
			used++
			buffers += e.buffers
		} else {
			delete(r.entries, e.info.Name)
			idle = append(idle, e)
		}
	}
	r.mu.Unlock()
	for _, e := range idle { // outside of the lock, because system calls take time
		_ = e.mapping.Close() // never fails
	}
	switch {
	case used > 0 && name != "":
		return oip.Errorf(oip.InUse, "region %s is in use in %d places; unregister it when its requests are over", oip.Quote(name), buffers)
	case used > 0:
		return oip.Errorf(oip.InUse, "%d regions were unregistered, and %d stay, which are in use", len(idle), used)
	}
	return nil
}

// Status describes a region that the client may use, or, if name is "", all of them in the order
// of their names. Errors: NotFound.
func (r *Registry) Status(from peercred.Client, name string) ([]Info, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, err := r.find(from, name)
	if err != nil {
		return nil, err
	}
	all := make([]Info, len(found)) // not nil: an empty list in JSON
	for i, e := range found {
		all[i] = e.info
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// InUse returns the number of regions, the bytes of their pages, and the number of buffers of them
// that are in use.
func (r *Registry) InUse() (regions int, bytes uint64, buffers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		bytes += e.charge
		buffers += e.buffers
	}
	return len(r.entries), bytes, buffers
}

// Close unregisters all regions. Memory in use is unmapped when its last buffer is released. Nothing
// can be registered or acquired afterwards. The error has the number of buffers in use. It may be called
// again.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	held := 0
	for name, e := range r.entries {
		if held += e.buffers; e.buffers == 0 {
			delete(r.entries, name)
			_ = e.mapping.Close()
		}
	}
	if held > 0 {
		return fmt.Errorf("%d ranges of shared memory regions are still in use; they are unmapped when they are released", held)
	}
	return nil
}

// Acquire returns size bytes of a region, beginning at offset, as a buffer, which the caller releases.
// The buffer is read-only unless write is set. Ranges may overlap and may be acquired any number of
// times; writes by several requests are not ordered. check returns an error if memory of the region was
// removed; call it after the use of the memory and before the release. Errors: NotFound, also for
// regions that the client may not use; Invalid for bytes that the region does not have and for memory
// that was truncated; NotReady after Close.
func (r *Registry) Acquire(from peercred.Client, name string, offset, size uint64, write bool) (b memmgr.Buffer, check func() error, err error) {
	e, err := r.enter(from, name, offset, size)
	if err != nil {
		return b, nil, err
	}
	if err := e.lost(); err != nil {
		r.leave(e)
		return b, nil, err
	}
	b, err = memmgr.FromForeign(unsafe.Add(e.mapping.Data(), offset), size, memmgr.ForeignOptions{
		Place:        e.mapping.Place(),
		Interprocess: true,
		Release:      func() { r.leave(e) },
	})
	if err != nil {
		r.leave(e)
		return b, nil, &oip.Error{Kind: oip.Busy, Message: "no more memory can be referred to at present", Err: err}
	}
	if !write {
		b.SetReadOnly()
	}
	return b, e.lost, nil
}

// enter counts a buffer of bytes that are in the region, which keeps the mapping.
func (r *Registry) enter(from peercred.Client, name string, offset, size uint64) (*entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, oip.ErrDraining
	}
	e, err := r.get(from, name)
	if err != nil {
		return nil, err
	}
	if offset > e.info.Size || size > e.info.Size-offset {
		return nil, oip.Errorf(oip.Invalid, "region %s has %d bytes (got offset %d and size %d)", oip.Quote(name), e.info.Size, offset, size)
	}
	e.buffers++
	return e, nil
}

// leave ends the use of a buffer. The last one after Close closes the mapping.
func (r *Registry) leave(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.buffers--; r.closed && e.buffers == 0 {
		delete(r.entries, e.info.Name)
		_ = e.mapping.Close()
	}
}

// lost returns an error if memory of the region was removed.
func (e *entry) lost() error {
	switch err := e.mapping.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, segment.ErrTruncated):
		return &oip.Error{Kind: oip.Invalid, Err: err,
			Message: "the shared memory of region " + oip.Quote(e.info.Name) + " was cut off; unregister it, and register the bytes that are left"}
	case errors.Is(err, memmgr.ErrClosed):
		return &oip.Error{Kind: oip.Invalid, Err: err, Message: "region " + oip.Quote(e.info.Name) + " was unregistered"}
	default:
		return &oip.Error{Kind: oip.Internal, Err: err, Message: "the shared memory of region " + oip.Quote(e.info.Name) + " cannot be used"}
	}
}
