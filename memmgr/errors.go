package memmgr

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
	"github.com/usmbridge/usmbridge/memmgr/internal/bytesize"
	"github.com/usmbridge/usmbridge/syclobj"
)

// The kinds of failure. Each typed error of this package matches one of them with
// errors.Is.
var (
	// ErrOutOfMemory: memory, a limit or address space is used up
	// ([OutOfMemoryError]).
	ErrOutOfMemory = errors.New("out of memory")
	// ErrRequest: the request is invalid for every resource, or the resource is.
	ErrRequest = errors.New("invalid request")
	// ErrNotHostReadable: the host cannot read the memory.
	ErrNotHostReadable = errors.New("memory is not readable by the host")
	// ErrReadOnly: the memory must not be written.
	ErrReadOnly = errors.New("memory is read-only")
	// ErrRange: an access lies outside the buffer, or the size of the buffer is unknown.
	ErrRange = errors.New("outside the buffer")
	// ErrClosed: the resource was closed.
	ErrClosed = errors.New("resource is closed")
	// ErrReleased: the memory was released, or was not allocated here ([UseError]).
	ErrReleased = errors.New("memory is not in use")
)

// OpError is the error of a failed operation. Other types are [OutOfMemoryError]
// and [LeakError], and the panic value [UseError].
type OpError struct {
	Op    string         // the operation, such as "Buffer.Bytes"
	Place *syclobj.Place // of the memory, nil where it does not matter
	Kind  error          // one of the Err… sentinels, nil if the cause is an upstream's
	Err   error          // the problem and a hint; may be nil
}

// Error returns operation, place and reason.
func (e *OpError) Error() string {
	s := "memmgr: " + e.Op
	if e.Place != nil {
		s += " on " + e.Place.String()
	}
	return operr.Text(s, e.Kind, e.Err)
}

// Unwrap returns Kind and Err.
func (e *OpError) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

func opError(op string, kind error, format string, args ...any) error {
	return &OpError{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Holder is the memory that one tag holds.
type Holder struct {
	Tenant string // "" for memory of the pool itself
	Tag    string // "" for memory without a tag
	Bytes  uint64
	Count  uint64
}

// holdersOf lists the holders by tag, of so much memory in all.
func holdersOf(u *account.TagUse, tenant string, bytes, blocks int64) (all []Holder) {
	for _, h := range u.Holdings(bytes, blocks) {
		all = append(all, Holder{Tenant: tenant, Tag: h.Tag, Bytes: uint64(h.Bytes), Count: uint64(h.Blocks)})
	}
	return all
}

// biggest returns up to mostHolders holders in descending order of size.
func biggest(all []Holder) []Holder {
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all[:min(mostHolders, len(all))]
}

// OutOfMemoryError is the error of a request that could not be served, with the largest
// holders of the memory. Numbers that a resource does not know are 0.
type OutOfMemoryError struct {
	Request     Request
	Place       *syclobj.Place // of the memory
	Tenant      string         // the account, "" for the pool's own
	Rounded     uint64         // bytes after rounding
	LargestFree uint64         // largest free block in bytes
	Allocated   uint64         // bytes in use; exact if no other call runs
	Reserved    uint64         // bytes taken from the upstream
	Pending     uint64         // freed bytes with pending work
	Limit       uint64         // the limit that refused in bytes, 0 for none
	DeviceTotal uint64         // memory of the device in bytes
	Holders     []Holder       // largest first
	Err         error          // the upstream's reason
}

// Error returns all figures on one line.
func (e *OutOfMemoryError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "memmgr: out of memory: asked for %s", bytesText(uint64(e.Request.Size)))
	if e.Request.Align > DefaultAlign {
		fmt.Fprintf(&b, " aligned to %d bytes", e.Request.Align)
	}
	if e.Request.Tag != "" {
		fmt.Fprintf(&b, " for %q", e.Request.Tag)
	}
	if e.Place != nil {
		fmt.Fprintf(&b, " of %s", e.Place)
	}
	if e.Tenant != "" {
		fmt.Fprintf(&b, " by tenant %q", e.Tenant)
	}
	for _, n := range []struct {
		name  string
		value uint64
	}{
		{"rounded to", e.Rounded}, {"limit", e.Limit}, {"in use", e.Allocated}, {"reserved", e.Reserved},
		{"waiting for the device", e.Pending}, {"device total", e.DeviceTotal},
	} {
		if n.value != 0 {
			fmt.Fprintf(&b, ", %s %s", n.name, bytesText(n.value))
		}
	}
	if e.Reserved != 0 {
		fmt.Fprintf(&b, ", largest free block %s", bytesText(e.LargestFree))
	}
	for i, h := range e.Holders {
		if i == 0 {
			b.WriteString("; held by")
		}
		tag := cmp.Or(h.Tag, "(no tag)")
		if h.Tenant != "" {
			tag = h.Tenant + "/" + tag
		}
		fmt.Fprintf(&b, " %s %s in %d", tag, bytesText(h.Bytes), h.Count)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	b.WriteString("; release buffers, trim the pool")
	if !errors.Is(e.Err, syclobj.ErrAllocation) { // which the limit did not refuse
		b.WriteString(", or raise the limit")
	}
	return b.String()
}

// Unwrap returns ErrOutOfMemory and Err.
func (e *OutOfMemoryError) Unwrap() []error { return operr.Unwrap(ErrOutOfMemory, e.Err) }

// UseError is the value of the panic on use of a buffer after its release, on a write to freed memory
// ([DebugEnv]), and on a free of
// a block that is not in use. It matches ErrReleased.
type UseError struct {
	Op        string // the method that was called, such as "Buffer.Data"
	Err       error  // the problem and a hint
	Allocated string // place of allocation, if stacks are recorded
	Released  string // place of the last release, if stacks are recorded
}

// Error returns operation, problem and the recorded places.
func (e *UseError) Error() string {
	s, next := "memmgr: "+e.Op+": "+e.Err.Error(), "; "
	if e.Allocated != "" {
		s += "; the memory was allocated at\n" + e.Allocated
		next = "and "
	}
	if e.Released != "" {
		s += next + "its last reference was released at\n" + e.Released
	}
	return s
}

// Unwrap returns ErrReleased and Err.
func (e *UseError) Unwrap() []error { return operr.Unwrap(ErrReleased, e.Err) }

// misuse returns the value of a panic.
func misuse(op, format string, args ...any) *UseError {
	return &UseError{Op: op, Err: fmt.Errorf(format, args...)}
}

func bytesText(n uint64) string { return bytesize.Text(n) }
