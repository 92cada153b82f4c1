package share

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/usmarray"
)

// MaxHandle is the maximum size of a handle in bytes.
const MaxHandle = handleHead + nonceBytes + 1 + maxAddress + maxDescription + 8 + 2

const (
	handleMagic   = 0x484d5355 // "USMH"
	handleVersion = 2
	handleHead    = 8
	nonceBytes    = 16

	maxDescription = 26 + 24 + 6 + 8 + 16*usmarray.MaxDims
)

// Handle identifies an array in the memory of a process, its maker. [Server.Export] makes a handle, and
// one process can open it once ([Server.Open], [Peer.Open]). Send [Handle.Bytes] to that process over any
// channel that is confidential: every process that reads the bytes and that the maker admits can open
// the handle. A Handle may be copied. The zero Handle identifies no array.
//
// A Handle and its lease correspond to these operations of Level Zero and of the SYCL extension
// sycl_ext_oneapi_inter_process_communication:
//
//	here                          Level Zero                  SYCL
//	Server.Export, Handle.Bytes   zeMemGetIpcHandle           ipc::memory::get
//	Peer.Open                     zeMemOpenIpcHandle          ipc::memory::open
//	the array's last Release      zeMemCloseIpcHandle         ipc::memory::close
//	the end of the lease          zeMemPutIpcHandle           ipc::memory::put
//
// Their handles can be opened any number of times, and expose the pages of one allocation. The program must
// not free the memory before the last close; here, the lease ensures that.
type Handle struct {
	encoded string
	maker   string
	d       description
	at      place // the slot on the board in which its maker offers it
}

// makeHandle encodes a handle with a new random secret.
func makeHandle(maker string, d *description, at place) Handle {
	b := make([]byte, 0, handleHead+nonceBytes+1+len(maker)+64+16*d.layout.NDim()+48)
	b = binary.LittleEndian.AppendUint32(b, handleMagic)
	b = append(b, handleVersion, 0, 0, 0)
	b = b[:len(b)+nonceBytes]
	_, _ = rand.Read(b[len(b)-nonceBytes:]) // never fails
	b = appendText(b, maker)
	b = appendDescription(b, d)
	b = binary.LittleEndian.AppendUint64(b, at.board)
	b = binary.LittleEndian.AppendUint16(b, at.slot)
	return Handle{string(b), maker, *d, at}
}

// ParseHandle decodes the bytes of a handle. It does not contact the maker: a stale or forged handle is
// detected when it is opened. Errors: ErrHandle if the bytes are truncated, too long, of another
// version, or contain an invalid description of an array.
func ParseHandle(b []byte) (Handle, error) {
	const op = "ParseHandle"
	if len(b) > MaxHandle {
		return Handle{}, opError(op, ErrHandle, "got %d bytes, want at most %d", len(b), MaxHandle)
	}
	h := Handle{encoded: string(b)} // a copy: the caller may change b meanwhile
	r := wireReader{b: []byte(h.encoded)}
	magic, version, zero := r.u32(), r.u8(), uint32(r.u8())|uint32(r.u16())
	r.bytes(nonceBytes)
	if magic != handleMagic || r.short {
		return Handle{}, opError(op, ErrHandle, "the %d bytes do not begin with the magic number of a handle", len(b))
	}
	if version != handleVersion || zero != 0 {
		return Handle{}, opError(op, ErrHandle, "the handle has version %d, want version %d", version, handleVersion)
	}
	h.maker = r.text()
	var err error
	if h.d, err = r.description(); err == nil {
		h.at = place{r.u64(), r.u16()}
		err = r.end("a handle")
	}
	if err == nil && (len(h.maker) < 2 || len(h.maker) > maxAddress || h.maker[0] != '@' && h.maker[0] != '/') {
		err = fmt.Errorf("the maker's address of %d bytes is neither a socket name nor a path", len(h.maker))
	}
	if err != nil {
		return Handle{}, opError(op, ErrHandle, "%w", err)
	}
	return h, nil
}

// Bytes returns the encoded handle, for [ParseHandle]. The bytes contain the secret of the lease.
func (h Handle) Bytes() []byte { return []byte(h.encoded) }

// Maker returns the address of the server that made the handle, as [Dial] takes it.
func (h Handle) Maker() string {
	if len(h.maker) > 0 && h.maker[0] == '/' {
		return fileScheme + h.maker
	}
	return h.maker
}

// DataType returns the element type of the array.
func (h Handle) DataType() dlpack.DataType { return h.d.dtype }

// Layout returns the layout of the array, in elements from the start of its buffer.
func (h Handle) Layout() usmarray.Layout { return h.d.layout }

// ReadOnly reports whether the opened array will be read-only.
func (h Handle) ReadOnly() bool { return h.d.readOnly }

// String describes the handle without its secret.
func (h Handle) String() string {
	if h.encoded == "" {
		return "share.Handle(none)"
	}
	return fmt.Sprintf("share.Handle(%s %s in segment %x at %d, lease %d of %s)",
		h.d.dtype, h.d.layout, h.d.segment.id[:4], h.d.offset, h.d.serial, h.maker)
}

// GoString returns String(), so that %#v does not print the secret.
func (h Handle) GoString() string { return h.String() }
