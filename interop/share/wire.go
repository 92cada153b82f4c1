package share

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Two processes exchange datagrams over a SOCK_SEQPACKET socket. A datagram is a sequence of frames.
// Numbers are little-endian. A frame is
//
//	kind u8 · 0 u8 · 0 u16 · size of the payload in bytes u32 · number of the call u64 · payload
//
// A datagram carries at most one descriptor, which belongs to its frameSegment or frameBoard. A message
// that violates this protocol ends the connection.
const (
	protocolMagic   = 0x314d5355 // "USM1"
	protocolVersion = 3

	maxDatagram  = 16 << 10 // bytes
	maxFrames    = 8        // in a datagram
	frameHeader  = 16       // bytes
	maxText      = 1 << 10  // bytes of an error's text
	maxName      = 255      // bytes of a name
	maxAddress   = 108      // bytes of sun_path
	releaseBatch = 512      // ended leases that one frame reports

	maxDriverHandle = 4 << 10 // bytes
)

type frameKind uint8

const (
	frameHello   frameKind = iota + 1 // first frame of both processes: magic u32, version u32
	frameRefused                      // answer: kind u8, text
	frameSegment                      // before the first frame with an array in the segment; with its descriptor: segment
	_                                 // 4 and 5 are not used
	_
	frameOpen      // receiver to maker: a handle; answered by frameOpened
	frameAttach    // receiver to maker: a name; answered by frameOpened
	frameOpened    // answer: description
	frameNames     // receiver to maker: the list begins after this name; answered by frameListed
	frameListed    // answer: names
	frameReleased  // receiver to maker: serials u64 of ended leases
	frameForget    // receiver to maker: ID of a segment that it will unmap; answered by frameForgotten
	frameForgotten // maker to receiver: ID of a segment that will be sent again before its next use
	frameGone      // maker to receiver: ID of a segment that was freed
	framePass      // receiver to maker: description with the serial of its lease; answered by framePassed
	framePassed    // answer: a handle
	frameDriver    // instead of frameSegment, for memory of a driver: segment, the driver's handle
	frameBoard     // maker to a process that opened a handle, once; with the descriptor of the board: its number u64
	frameWait      // receiver to maker: sequence number u64, name; answered by frameNewer
	frameNewer     // answer: sequence number u64, description
	frameCancel    // receiver to maker: cancels the frameWait with this call number
	lastFrame      = frameCancel
)

// answer returns the kind of frame that answers a request, or 0 if k is not a request. frameRefused can
// answer any request.
func (k frameKind) answer() frameKind {
	switch k {
	case frameOpen, frameAttach:
		return frameOpened
	case frameNames:
		return frameListed
	case framePass:
		return framePassed
	case frameWait:
		return frameNewer
	default:
		return 0
	}
}

// segmentFacts are the properties of a segment. They never change.
type segmentFacts struct {
	id       segment.ID
	size     uint64 // bytes
	audience segment.Audience
	kind     syclobj.USMKind
}

// description describes an array in a segment and its lease.
type description struct {
	segment  segmentFacts
	offset   uint64 // of the buffer in the segment, in bytes
	size     uint64 // of the buffer in bytes
	serial   uint64 // of the lease; never 0, and its maker never reuses it
	dtype    dlpack.DataType
	readOnly bool
	padded   bool
	layout   usmarray.Layout // relative to the start of the buffer
}

const (
	flagReadOnly = 1 << iota
	flagPadded
	flagPeersRead
	allFlags = flagReadOnly | flagPadded | flagPeersRead
)

func appendFrame(b []byte, kind frameKind, call uint64, payload func([]byte) []byte) []byte {
	at := len(b)
	b = append(b, byte(kind), 0, 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, call)
	if payload != nil {
		b = payload(b)
	}
	binary.LittleEndian.PutUint32(b[at+4:], uint32(len(b)-at-frameHeader))
	return b
}

type frame struct {
	kind    frameKind
	call    uint64
	payload []byte
}

// nextFrame splits the first frame off a datagram.
func nextFrame(b []byte) (f frame, rest []byte, err error) {
	r := wireReader{b: b}
	f.kind = frameKind(r.u8())
	zero := uint32(r.u8()) | uint32(r.u16())
	n := r.u32()
	f.call = r.u64()
	f.payload = r.bytes(uint64(n))
	switch {
	case r.short:
		return f, nil, fmt.Errorf("a frame of %d bytes is cut off at %d", uint64(n)+frameHeader, len(b))
	case f.kind == 0 || f.kind > lastFrame:
		return f, nil, fmt.Errorf("a frame of kind %d, which protocol version %d does not define", f.kind, protocolVersion)
	case zero != 0:
		return f, nil, fmt.Errorf("reserved bits are set in a frame of kind %d", f.kind)
	}
	return f, r.b, nil
}

// wireReader reads numbers from a message. short reports that the message was truncated or invalid.
type wireReader struct {
	b     []byte
	short bool
}

func (r *wireReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.short, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

var zeros [8]byte

// fixed returns n bytes, at most 8. They are 0 if the message is too short.
func (r *wireReader) fixed(n uint64) []byte {
	if b := r.bytes(n); b != nil {
		return b
	}
	return zeros[:n]
}

func (r *wireReader) u8() byte    { return r.fixed(1)[0] }
func (r *wireReader) u16() uint16 { return binary.LittleEndian.Uint16(r.fixed(2)) }
func (r *wireReader) u32() uint32 { return binary.LittleEndian.Uint32(r.fixed(4)) }
func (r *wireReader) u64() uint64 { return binary.LittleEndian.Uint64(r.fixed(8)) }

// end returns an error if the message was truncated or has bytes left. what describes the message.
func (r *wireReader) end(message string) error {
	if r.short {
		return fmt.Errorf("%s is truncated", message)
	}
	if len(r.b) != 0 {
		return fmt.Errorf("%s has %d bytes too many", message, len(r.b))
	}
	return nil
}

func appendHello(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, protocolMagic)
	return binary.LittleEndian.AppendUint32(b, protocolVersion)
}

func readHello(b []byte) error {
	r := wireReader{b: b}
	magic, version := r.u32(), r.u32()
	if err := r.end("the greeting"); err != nil {
		return err
	}
	if magic != protocolMagic || version != protocolVersion {
		return fmt.Errorf("the greeting has magic %#x and version %d, want %#x and %d; use the same version of usmbridge in both processes", magic, version, protocolMagic, protocolVersion)
	}
	return nil
}

func appendSegment(b []byte, s *segmentFacts) []byte {
	b = append(b, s.id[:]...)
	b = binary.LittleEndian.AppendUint64(b, s.size)
	flags := byte(0)
	if s.audience == segment.PeersRead {
		flags = flagPeersRead
	}
	return append(b, flags, byte(s.kind))
}

func (r *wireReader) segment() (s segmentFacts) {
	copy(s.id[:], r.bytes(16))
	s.size = r.u64()
	flags := r.u8()
	s.audience = segment.PeersWrite
	if flags&flagPeersRead != 0 {
		s.audience = segment.PeersRead
	}
	s.kind = syclobj.USMKind(r.u8())
	if flags&^byte(flagPeersRead) != 0 || s.kind > lastKind || s.size == 0 || s.size > maxSegment {
		r.short = true
	}
	return s
}

const (
	lastKind   = syclobj.USMHost
	maxSegment = 1 << 62 // bytes
)

func readSegment(b []byte) (segmentFacts, error) {
	r := wireReader{b: b}
	s := r.segment()
	return s, r.end("the facts of a segment")
}

// readDriver reads the payload of frameDriver. The handle is a copy.
func readDriver(b []byte) (s segmentFacts, handle []byte, err error) {
	r := wireReader{b: b}
	s = r.segment()
	switch {
	case r.short:
		return s, nil, r.end("the facts of a segment")
	case len(r.b) == 0 || len(r.b) > maxDriverHandle:
		return s, nil, fmt.Errorf("a driver's handle of %d bytes, want 1 to %d", len(r.b), maxDriverHandle)
	case s.kind != syclobj.USMDevice || s.audience != segment.PeersWrite:
		return s, nil, fmt.Errorf("a driver's handle of %v memory for %q, want device memory for %q", s.kind, s.audience, segment.PeersWrite)
	}
	return s, bytes.Clone(r.b), nil
}

func appendDescription(b []byte, d *description) []byte {
	b = appendSegment(b, &d.segment)
	for _, v := range [...]uint64{d.offset, d.size, d.serial} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	flags := byte(0)
	if d.readOnly {
		flags |= flagReadOnly
	}
	if d.padded {
		flags |= flagPadded
	}
	b = append(b, flags, byte(d.dtype.Code), d.dtype.Bits)
	b = binary.LittleEndian.AppendUint16(b, d.dtype.Lanes)
	shape, strides := d.layout.Shape(), d.layout.Strides()
	b = append(b, byte(len(shape)))
	b = binary.LittleEndian.AppendUint64(b, uint64(int64(d.layout.Offset())))
	for _, v := range shape {
		b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
	}
	for _, v := range strides {
		b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
	}
	return b
}

// description reads a description. It checks that the buffer lies in the segment and that the layout is
// valid. Package usmarray checks that the elements lie in the buffer.
func (r *wireReader) description() (d description, err error) {
	d.segment = r.segment()
	d.offset, d.size, d.serial = r.u64(), r.u64(), r.u64()
	flags := r.u8()
	d.readOnly, d.padded = flags&flagReadOnly != 0, flags&flagPadded != 0
	d.dtype = dlpack.DataType{Code: dlpack.Code(r.u8()), Bits: r.u8(), Lanes: r.u16()}
	n := int(r.u8())
	offset, ok := r.int()
	if n > usmarray.MaxDims {
		return d, fmt.Errorf("an array of %d dimensions, want at most %d", n, usmarray.MaxDims)
	}
	var numbers [2 * usmarray.MaxDims]int
	for i := range numbers[:2*n] {
		var fits bool
		numbers[i], fits = r.int()
		ok = ok && fits
	}
	switch {
	case r.short:
		return d, fmt.Errorf("the description of an array is truncated, or describes an invalid segment")
	case flags&^byte(flagReadOnly|flagPadded) != 0:
		return d, fmt.Errorf("an array with flags %#x, which protocol version %d does not define", flags, protocolVersion)
	case !ok:
		return d, fmt.Errorf("a layout with numbers that do not fit into an int of this process")
	case d.serial == 0:
		return d, fmt.Errorf("an array with lease number 0")
	case d.offset > d.segment.size || d.size > d.segment.size-d.offset:
		return d, fmt.Errorf("a buffer of %d bytes at offset %d, outside of its segment of %d bytes", d.size, d.offset, d.segment.size)
	}
	d.layout, err = usmarray.NewLayout(numbers[:n], numbers[n:2*n], offset)
	return d, err
}

func (r *wireReader) int() (int, bool) {
	v := int64(r.u64())
	return int(v), int64(int(v)) == v
}

func readDescription(b []byte) (description, error) {
	r := wireReader{b: b}
	d, err := r.description()
	if err == nil {
		err = r.end("the description of an array")
	}
	return d, err
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), maxName)]
	return append(append(b, byte(len(s))), s...)
}

func (r *wireReader) text() string { return string(r.bytes(uint64(r.u8()))) }

func readName(b []byte) (string, error) {
	r := wireReader{b: b}
	name := r.text()
	return name, r.end("a name")
}

// readWait reads the payload of frameWait.
func readWait(b []byte) (after uint64, name string, err error) {
	r := wireReader{b: b}
	after = r.u64()
	name = r.text()
	return after, name, r.end("a wait")
}

// readNewer reads the payload of frameNewer.
func readNewer(b []byte) (sequence uint64, d description, err error) {
	r := wireReader{b: b}
	sequence = r.u64()
	d, err = r.description()
	if err == nil {
		err = r.end("a newer array")
	}
	return sequence, d, err
}

func appendRefusal(b []byte, err error) []byte {
	text := err.Error()
	return append(append(b, kindNumber(err)), text[:min(len(text), maxText)]...)
}

// readRefusal reads the payload of frameRefused and returns its error.
func readRefusal(b []byte) (refusal error, err error) {
	if len(b) == 0 || len(b) > maxText+1 {
		return nil, fmt.Errorf("a refusal of %d bytes, want 1 to %d", len(b), maxText+1)
	}
	return &OpError{Op: "the other side", Kind: kindOf(b[0]), Err: fmt.Errorf("%q", b[1:])}, nil
}

// readSerials reads the payload of frameReleased and appends the serials to into.
func readSerials(b []byte, into []uint64) ([]uint64, error) {
	if len(b)%8 != 0 || len(b) > 8*releaseBatch {
		return nil, fmt.Errorf("a list of ended leases of %d bytes, want a multiple of 8, at most %d", len(b), 8*releaseBatch)
	}
	for ; len(b) > 0; b = b[8:] {
		into = append(into, binary.LittleEndian.Uint64(b))
	}
	return into, nil
}

func readID(b []byte) (id segment.ID, err error) {
	if len(b) != len(id) {
		return id, fmt.Errorf("a segment ID of %d bytes, want %d", len(b), len(id))
	}
	copy(id[:], b)
	return id, nil
}

// readNames reads a part of a list of names. It checks that the names are in strictly ascending order and
// not empty.
func readNames(b []byte) (names []string, err error) {
	r := wireReader{b: b}
	for last := ""; len(r.b) > 0; {
		name := r.text()
		if name <= last && !r.short {
			return nil, fmt.Errorf("a list of names in which %q follows %q", name, last)
		}
		names = append(names, name)
		last = name
	}
	return names, r.end("a list of names")
}
