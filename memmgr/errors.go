package memmgr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/memmgr/internal/bytesize"
	"github.com/usmbridge/usmbridge/syclobj"
)

// The kinds of failure. The typed errors of this package answer to one of them
// through errors.Is.
var (
	// ErrOutOfMemory: memory, a limit or address space is used up
	// ([OutOfMemoryError]).
	ErrOutOfMemory = errors.New("out of memory")
	// ErrRequest: the request makes no sense, whoever is asked; so does one that
	// names no resource.
	ErrRequest = errors.New("invalid request")
	// ErrNotHostReadable: the processor cannot read the memory.
	ErrNotHostReadable = errors.New("memory is not readable by the host")
	// ErrReadOnly: the memory must not be written.
	ErrReadOnly = errors.New("memory is read-only")
	// ErrRange: an access lies outside the buffer, or the buffer's extent is not
	// known.
	ErrRange = errors.New("outside the buffer")
	// ErrClosed: the resource was closed.
	ErrClosed = errors.New("resource is closed")
	// ErrReleased: use of memory that is not in use, because it was released or
	// was never allocated here; the value of a panic ([UseError]).
	ErrReleased = errors.New("memory is not in use")
	// ErrAsleep: use of memory that [Pool.Sleep] put to sleep.
	ErrAsleep = errors.New("memory is asleep")
	// ErrInUse: memory that is to fall asleep is in use elsewhere ([HeldError]).
	ErrInUse = errors.New("memory is in use")
)

// OpError is the type of the errors of this package, but for those that have
// numbers to tell ([OutOfMemoryError], [LeakError]) and those that only a mistake
// in the program makes ([UseError], [CorruptionError]).
type OpError struct {
	Op    string         // what was tried, such as "Buffer.Bytes"
	Place *syclobj.Place // on which memory, nil when that does not matter
	Kind  error          // one of the Err… sentinels, nil when the cause comes from below
	Err   error          // what was asked, what was found and what to do; may be nil
}

// Error names operation, memory and reason.
func (e *OpError) Error() string {
	s := "memmgr: " + e.Op
	if e.Place != nil {
		s += " on " + e.Place.String()
	}
	for _, reason := range e.Unwrap() {
		s += ": " + reason.Error()
	}
	return s
}

// Unwrap gives the kind and the cause to errors.Is and errors.As.
func (e *OpError) Unwrap() []error { return kindAndCause(e.Kind, e.Err) }

func kindAndCause(kind, cause error) (both []error) {
	for _, err := range []error{kind, cause} {
		if err != nil {
			both = append(both, err)
		}
	}
	return both
}

func opError(op string, kind error, format string, args ...any) error {
	return &OpError{Op: op, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Holder is one user of memory in an OutOfMemoryError, by tag.
type Holder struct {
	Tenant string // "" for memory of the pool itself
	Tag    string // "" for memory without a tag
	Bytes  uint64
	Count  uint64
}

// OutOfMemoryError tells why memory could not be had, and who holds it.
// Resources fill in what they know; numbers they cannot know stay 0.
type OutOfMemoryError struct {
	Request     Request        // what was asked
	Place       *syclobj.Place // of which memory
	Tenant      string         // whose account, "" for the pool's own
	Rounded     uint64         // bytes the resource looked for
	LargestFree uint64         // largest block it holds free
	Allocated   uint64         // bytes in use; exact while nobody allocates or releases
	Reserved    uint64         // bytes taken from the upstream
	Pending     uint64         // bytes freed that wait for work on the device
	Limit       uint64         // limit in bytes that refused, 0 for none
	DeviceTotal uint64         // memory of the device
	Holders     []Holder       // biggest first
	Err         error          // the upstream's reason
}

// Error gives the whole account on one line.
func (e *OutOfMemoryError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "memmgr: out of memory: asked for %s", bytesText(uint64(e.Request.Size)))
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
		tag := h.Tag
		if tag == "" {
			tag = "(no tag)"
		}
		if h.Tenant != "" {
			tag = h.Tenant + "/" + tag
		}
		fmt.Fprintf(&b, " %s %s in %d", tag, bytesText(h.Bytes), h.Count)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	b.WriteString("; release buffers, trim the pool, or raise the limit")
	return b.String()
}

// Unwrap gives ErrOutOfMemory and the upstream's reason.
func (e *OutOfMemoryError) Unwrap() []error { return kindAndCause(ErrOutOfMemory, e.Err) }

// UseError is the value of the panic on use of a buffer after its release, and on
// a free of what is not out. It matches ErrReleased.
type UseError struct {
	Op        string // the method that was called, such as "Buffer.Data"
	Err       error  // what was found, and what to do
	Allocated string // where the memory was allocated, when stacks are recorded
	Released  string // where its last reference was released
}

// Error says what was done wrong and how to find it.
func (e *UseError) Error() string {
	s := "memmgr: " + e.Op + ": " + e.Err.Error()
	if e.Allocated != "" {
		s += "; the memory was allocated at\n" + e.Allocated
	}
	if e.Released != "" {
		s += "and its last reference was released at\n" + e.Released
	}
	return s
}

// Unwrap gives ErrReleased, or ErrAsleep, and what was found.
func (e *UseError) Unwrap() []error {
	if errors.Is(e.Err, ErrAsleep) {
		return []error{e.Err}
	}
	return kindAndCause(ErrReleased, e.Err)
}

// misuse is the value of a panic.
func misuse(op, format string, args ...any) *UseError {
	return &UseError{Op: op, Err: fmt.Errorf(format, args...)}
}

func bytesText(n uint64) string { return bytesize.Text(n) }
