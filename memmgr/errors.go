package memmgr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/syclobj"
)

// Sentinels; the typed errors of this package match them with errors.Is.
var (
	// ErrOutOfMemory: memory, a limit or address space is used up.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrRequest: the request makes no sense, whoever is asked.
	ErrRequest = errors.New("invalid request")
	// ErrNotHostReadable: the processor cannot read the memory.
	ErrNotHostReadable = errors.New("memory is not readable by the host")
	// ErrReadOnly: the memory must not be written.
	ErrReadOnly = errors.New("memory is read-only")
	// ErrRange: an access lies outside the buffer.
	ErrRange = errors.New("outside the buffer")
	// ErrClosed: the resource was closed.
	ErrClosed = errors.New("resource is closed")
	// ErrReleased: use after release.
	ErrReleased = errors.New("buffer was released")
)

// RequestError is a request that no resource can fulfil.
type RequestError struct {
	Request Request
	Reason  string
}

// Error says what was asked and what is wrong with it.
func (e *RequestError) Error() string {
	return fmt.Sprintf("memmgr: cannot allocate %d bytes aligned to %d: %s", e.Request.Size, e.Request.align(), e.Reason)
}

// Is makes every RequestError match ErrRequest.
func (e *RequestError) Is(target error) bool { return target == ErrRequest }

// Holder is one user of memory in an OutOfMemoryError, by tag.
type Holder struct {
	Tag   string // "" for memory without a tag
	Bytes uint64
	Count uint64
}

// OutOfMemoryError tells why memory could not be had, and who holds it.
// Resources fill in what they know; numbers they cannot know stay 0.
type OutOfMemoryError struct {
	Request     Request        // what was asked
	Place       *syclobj.Place // of which memory
	Rounded     uint64         // bytes the resource looked for
	LargestFree uint64         // largest block it holds free
	Allocated   uint64         // bytes in use
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
		fmt.Fprintf(&b, " of %s", placeText(e.Place))
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
		fmt.Fprintf(&b, " %s %s in %d", tag, bytesText(h.Bytes), h.Count)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	b.WriteString("; release buffers, trim the pool, or raise the limit")
	return b.String()
}

// Unwrap gives the upstream's reason.
func (e *OutOfMemoryError) Unwrap() error { return e.Err }

// Is makes every OutOfMemoryError match ErrOutOfMemory.
func (e *OutOfMemoryError) Is(target error) bool { return target == ErrOutOfMemory }

// UseError is the value of the panic on use after release, and on a release too
// many.
type UseError struct {
	Op        string // the method that was called
	Allocated string // where the memory was allocated, when stacks are recorded
	Reused    bool   // the owner has since been given to other memory
}

// Error says what was done wrong and how to find it.
func (e *UseError) Error() string {
	what := "Buffer." + e.Op + " after the last reference was released"
	if e.Reused {
		what += " (its owner serves other memory by now)"
	}
	if e.Allocated == "" {
		return "memmgr: " + what + "; memmgr.RecordStacks(16) tells where the memory was allocated"
	}
	return "memmgr: " + what + "; the memory was allocated at\n" + e.Allocated
}

// Is makes every UseError match ErrReleased.
func (e *UseError) Is(target error) bool { return target == ErrReleased }

// RangeError is an access that does not fit in the buffer.
type RangeError struct {
	Op     string
	Offset uint64 // first byte
	Length uint64 // bytes
	Size   uint64 // of the buffer
}

// Error names span and size.
func (e *RangeError) Error() string {
	return fmt.Sprintf("memmgr: %s: %d bytes from byte %d do not fit in a buffer of %d bytes", e.Op, e.Length, e.Offset, e.Size)
}

// Is makes every RangeError match ErrRange.
func (e *RangeError) Is(target error) bool { return target == ErrRange }

// bytesText writes a number of bytes for people.
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	return fmt.Sprintf("%.4g %ciB", v, units[u])
}
