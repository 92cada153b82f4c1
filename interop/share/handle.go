package share

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/usmarray"
)

// MaxHandle is the most bytes that a handle has.
const MaxHandle = handleHead + nonceBytes + 1 + maxAddress + maxDescription + 8 + 2

const (
	handleMagic   = 0x484d5355 // "USMH"
	handleVersion = 2
	handleHead    = 8
	nonceBytes    = 16

	maxDescription = 26 + 24 + 6 + 8 + 16*usmarray.MaxDims
)

// Handle names an array in the memory of a process, its maker, and is good for one
// opening by one process ([Server.Export], [Server.Open], [Peer.Open]). It travels as
// [Handle.Bytes] over any channel; whoever reads it there can open it in the receiver's
// place, if the maker admits them. A Handle is a plain value, and the zero Handle names
// nothing.
type Handle struct {
	encoded string
	maker   string
	d       description
	at      place // where its maker offers it
}

// makeHandle draws the secret of a lease.
func makeHandle(maker string, d *description, at place) Handle {
	b := make([]byte, 0, handleHead+nonceBytes+1+len(maker)+64+16*d.layout.NDim()+48)
	b = binary.LittleEndian.AppendUint32(b, handleMagic)
	b = append(b, handleVersion, 0, 0, 0)
	b = b[:len(b)+nonceBytes]
	_, _ = rand.Read(b[len(b)-nonceBytes:]) // never fails: the program ends where there is no randomness
	b = appendText(b, maker)
	b = appendDescription(b, d)
	b = binary.LittleEndian.AppendUint64(b, at.board)
	b = binary.LittleEndian.AppendUint16(b, at.slot)
	return Handle{string(b), maker, *d, at}
}

// ParseHandle reads the bytes of a handle. It asks nobody, so that a handle that is over
// or was made up can pass; opening tells. Errors: ErrHandle for bytes that are truncated,
// too many, of another version, or describe what cannot be.
func ParseHandle(b []byte) (Handle, error) {
	const op = "ParseHandle"
	if len(b) > MaxHandle {
		return Handle{}, opError(op, ErrHandle, "%d bytes, and a handle has at most %d", len(b), MaxHandle)
	}
	h := Handle{encoded: string(b)} // the caller's bytes may change from here on
	r := wireReader{b: []byte(h.encoded)}
	magic, version, zero := r.u32(), r.u8(), uint32(r.u8())|uint32(r.u16())
	r.bytes(nonceBytes)
	if magic != handleMagic || r.short {
		return Handle{}, opError(op, ErrHandle, "%d bytes that do not begin as a handle does", len(b))
	}
	if version != handleVersion || zero != 0 {
		return Handle{}, opError(op, ErrHandle, "a handle of version %d, and this is version %d", version, handleVersion)
	}
	h.maker = r.text()
	var err error
	if h.d, err = r.description(); err == nil {
		h.at = place{r.u64(), r.u16()}
		err = r.end("a handle")
	}
	if err == nil && (len(h.maker) < 2 || len(h.maker) > maxAddress || h.maker[0] != '@' && h.maker[0] != '/') {
		err = fmt.Errorf("a maker's address of %d bytes that is neither a name nor a path", len(h.maker))
	}
	if err != nil {
		return Handle{}, opError(op, ErrHandle, "%w", err)
	}
	return h, nil
}

// Bytes returns the handle as it travels. They hold the lease's secret.
func (h Handle) Bytes() []byte { return []byte(h.encoded) }

// Maker is the address of the server whose array it is, as [Dial] takes it.
func (h Handle) Maker() string { return h.socketAddress() }

func (h Handle) socketAddress() string {
	if len(h.maker) > 0 && h.maker[0] == '/' {
		return fileScheme + h.maker
	}
	return h.maker
}

// DataType is the element type of the array.
func (h Handle) DataType() dlpack.DataType { return h.d.dtype }

// Layout is the array's, in elements from the start of its buffer.
func (h Handle) Layout() usmarray.Layout { return h.d.layout }

// ReadOnly reports whether it arrives read-only.
func (h Handle) ReadOnly() bool { return h.d.readOnly }

// String describes the handle without its secret.
func (h Handle) String() string {
	if h.encoded == "" {
		return "share.Handle(none)"
	}
	return fmt.Sprintf("share.Handle(%s %s in segment %x at %d, lease %d of %s)",
		h.d.dtype, h.d.layout, h.d.segment.id[:4], h.d.offset, h.d.serial, h.maker)
}

// GoString is String: %#v tells no secret either.
func (h Handle) GoString() string { return h.String() }

// openHandle reads what frameOpen carries: the handle as its maker wrote it.
func openHandle(b []byte) (serial uint64, err error) {
	h, err := ParseHandle(bytes.Clone(b))
	return h.d.serial, err
}
