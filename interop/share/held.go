package share

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// held is a segment of the other process that this one knows. Its mappings are made by the
// goroutine that reads from that process, alone.
type held struct {
	facts     segmentFacts
	file      *os.File            // nil for a driver's memory
	info      os.FileInfo         // of the file
	handle    []byte              // a driver's, in the place of the file
	maps      [2]*segment.Mapping // [0] to write, [1] to read only; nil until an array needs it
	arrays    int                 // open in it
	idle      time.Time           // since when there are none
	asked     bool                // the other process was asked to forget that it is known here
	forgotten bool                // and did, or has the segment no more
	lentAs    segment.ID          // under which this process lends it; zero until it does
	unmapped  atomic.Bool
}

// opened is one array of another process, until the last reference of its buffer goes.
type opened struct {
	peer   *Peer
	held   *held
	lent   lent
	buffer memmgr.Buffer // the zero Buffer until there is one

	slot  uint16 // of the board, if it was opened from there
	claim claim  // zero: it was not
}

// lent is what was lent of the segment.
type lent struct {
	offset, size uint64 // bytes
	serial       uint64 // of the lease
	readOnly     bool
}

func lentOf(d *description) lent { return lent{d.offset, d.size, d.serial, d.readOnly} }

// heldFiles counts the descriptors of others' segments, over all connections.
var heldFiles atomic.Int64

// same tells whether it is the memory that was shown before.
func (h *held) same(other *held) bool {
	if h.facts != other.facts || (h.file == nil) != (other.file == nil) {
		return false
	}
	return h.file == nil || os.SameFile(h.info, other.info) // a driver may make another handle each time
}

// meet takes note of a segment. It takes the descriptor over, which is one of memory, so that
// nothing here waits for the other process.
func (p *Peer) meet(h *held) (err error) {
	var declined error
	p.mu.Lock()
	id := h.facts.id
	old := p.held[id]
	taken := false
	switch {
	case p.err != nil:
		err = p.err
	case old != nil && !old.same(h):
		err = fmt.Errorf("segment %v changed", id)
	case old != nil:
		old.asked, old.forgotten = false, false
	case len(p.calls) == 0 && p.noGifts() != nil:
		declined = p.noGifts()
	case len(p.held) >= p.node.options.MaxSegments:
		declined = opError("Open", ErrLimit, "%d segments of %v are known here, Options.MaxSegments", len(p.held), p.credentials)
	case h.file != nil && heldFiles.Add(1) > maxHeld():
		heldFiles.Add(-1)
		declined = opError("Open", ErrLimit, "%d descriptors of segments of others are open in this process, half of what it may have (RLIMIT_NOFILE)", heldFiles.Load())
	default:
		h.idle = time.Now()
		p.held[id] = h
		taken = true
	}
	p.mu.Unlock()
	if !taken && h.file != nil {
		_ = h.file.Close()
	}
	if declined != nil {
		return p.decline(id, declined)
	}
	return err
}

// decline takes note of a segment that cannot be kept, and why: what is to be opened in it is
// refused, until the other process has forgotten that it showed it.
func (p *Peer) decline(id segment.ID, why error) error {
	p.mu.Lock()
	if p.declined[id] == nil && len(p.declined) >= p.node.options.MaxSegments {
		p.mu.Unlock()
		return fmt.Errorf("segment %v comes although %d were declined", id, p.node.options.MaxSegments)
	}
	p.declined[id] = why
	d := p.newDatagram()
	d.b = appendFrame(d.b, frameForget, 0, func(b []byte) []byte { return append(b, id[:]...) })
	return p.post(d)
}

// adopt makes the array of a lease that begins. Only the goroutine that reads calls it. On
// an error the lease is over, or the answer says so.
func (p *Peer) adopt(d *description) (*usmarray.Array, error) {
	const op = "Open"
	p.mu.Lock()
	h := p.held[d.segment.id]
	declined := p.declined[d.segment.id]
	refusal := error(nil)
	switch {
	case p.err != nil:
		refusal = p.err
	case h == nil && declined != nil:
		refusal = declined
	case h == nil:
		p.mu.Unlock()
		return nil, opError(op, ErrProtocol, "segment %v was never shown", d.segment.id)
	case h.facts != d.segment:
		p.mu.Unlock()
		return nil, opError(op, ErrProtocol, "segment %v is not as it was", d.segment.id)
	case p.opened >= p.node.options.MaxLeases:
		refusal = opError(op, ErrLimit, "%d arrays of %v are open here, Options.MaxLeases", p.opened, p.credentials)
	}
	if refusal != nil {
		p.noteEnded(d.serial)
		p.mu.Unlock()
		return nil, refusal
	}
	h.arrays++ // keeps the mapping
	p.opened++
	p.mu.Unlock()
	m, err := p.mapped(h, d.readOnly || d.segment.audience == segment.PeersRead)
	if err != nil {
		(&opened{peer: p, held: h, lent: lentOf(d)}).end()
		return nil, &OpError{Op: op, Kind: kindOfMapping(err), Err: err}
	}
	return p.arrayOf(&opened{peer: p, held: h, lent: lentOf(d)}, m, d)
}

// arrayOf makes the array of a lease that began, in a mapping that the caller keeps there. On an
// error the lease is over. Any goroutine.
func (p *Peer) arrayOf(o *opened, m *segment.Mapping, d *description) (*usmarray.Array, error) {
	const op = "Open"
	buffer, err := memmgr.FromForeign(unsafe.Add(m.Data(), d.offset), d.size, memmgr.ForeignOptions{
		Place: m.Place(), Closer: endOpened, P: unsafe.Pointer(o),
	})
	if err != nil {
		o.end()
		return nil, withOp(op, err)
	}
	o.buffer = buffer
	o.note()
	options := make([]usmarray.Option, 0, 2)
	if m.ReadOnly() || d.readOnly { // a driver's memory has no protection
		buffer.SetReadOnly()
		options = append(options, usmarray.ReadOnly())
	}
	if d.padded {
		options = append(options, usmarray.Padded())
	}
	a, err := usmarray.FromBuffer(buffer, d.dtype, d.layout, options...)
	if err != nil {
		buffer.Release() // ends the lease
		return nil, &OpError{Op: op, Kind: ErrHandle, Err: err}
	}
	return a, nil
}

// kindOfMapping tells memory that cannot be mapped from limits that were reached.
func kindOfMapping(err error) error {
	if errors.Is(err, segment.ErrLimit) {
		return ErrLimit
	}
	return ErrNotShared
}

// endOpened is what the last reference of an opened array calls. It may run anywhere.
func endOpened(p unsafe.Pointer, _ uintptr) { (*opened)(p).end() }

func (o *opened) end() {
	p := o.peer
	if o.buffer != (memmgr.Buffer{}) {
		o.forget()
	}
	p.mu.Lock()
	o.held.arrays--
	p.opened--
	if p.claims.release(o) {
		p.marked = append(p.marked, o)
		p.startReporting()
	} else {
		p.noteEnded(o.lent.serial)
	}
	over, closing, last := p.err != nil, p.closing, p.opened == 0
	unmap := false
	if o.held.arrays == 0 {
		if unmap = over || o.held.forgotten; unmap {
			delete(p.held, o.held.facts.id)
		} else {
			o.held.idle = time.Now()
		}
	}
	p.mu.Unlock()
	if unmap {
		o.held.unmap()
	}
	if over && last {
		p.watch.Close() // fail left it open if the process was ending
	}
	if closing && !over {
		p.endIfIdle()
	}
}

// which tells the mapping that an array needs.
func (h *held) which(readOnly bool) int {
	if readOnly && h.file != nil { // a driver's memory is mapped once
		return 1
	}
	return 0
}

// mapped gives the mapping that an array needs. Nobody else makes or ends one meanwhile.
func (p *Peer) mapped(h *held, readOnly bool) (*segment.Mapping, error) {
	which := h.which(readOnly)
	if m := h.maps[which]; m != nil {
		return m, nil
	}
	o := &p.node.options
	a := segment.Attachment{File: h.file, Handle: h.handle, Size: h.facts.size, Audience: h.facts.audience, ReadOnly: which == 1}
	if h.handle != nil && (o.Queue == nil || o.Queue.IsHost()) {
		return nil, fmt.Errorf("it is device memory of a driver, and no queue on that device was given; set Options.Queue, or have it copied where it is (Options.CopyInto there)")
	}
	if h.facts.kind != syclobj.USMUnknown {
		switch {
		case o.Queue != nil && !o.Queue.IsHost():
			a.Queue, a.Kind = o.Queue, h.facts.kind
		case !o.AsHost:
			return nil, fmt.Errorf("it is USM of kind %s, and no queue was given to map it on; set Options.Queue, or Options.AsHost for the plain bytes", h.facts.kind)
		}
	}
	m, err := segment.Map(a)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	h.maps[which] = m
	p.mu.Unlock()
	return m, nil
}

// unmap ends what is held of a segment. The caller took it from the connection, or the
// connection is over and no array is open.
func (h *held) unmap() {
	h.unmapped.Store(true)
	for _, m := range h.maps {
		if m != nil {
			_ = m.Close() // cannot fail
		}
	}
	if h.file != nil {
		_ = h.file.Close()
		heldFiles.Add(-1)
	}
}

// takeIdle takes out all segments without open arrays, of a connection that is over.
// Under mu.
func (p *Peer) takeIdle() (all []*held) {
	for id, h := range p.held {
		if h.arrays == 0 {
			delete(p.held, id)
			all = append(all, h)
		}
	}
	return all
}

// Trim unmaps memory of the other process in which no array is open, without waiting
// for Options.Idle, and returns how many bytes that are. They go as soon as the other
// process has answered.
func (p *Peer) Trim() (bytes uint64) {
	return p.forgetIdle(func(*held) bool { return true })
}

// forgetIdle asks the other process to forget that idle segments are known here.
func (p *Peer) forgetIdle(which func(*held) bool) (bytes uint64) {
	p.mu.Lock()
	var ask []segment.ID
	for id, h := range p.held {
		if h.arrays == 0 && !h.asked && which(h) {
			h.asked = true
			ask = append(ask, id)
			bytes += h.facts.size
		}
	}
	p.mu.Unlock()
	for len(ask) > 0 {
		p.mu.Lock()
		d := p.newDatagram()
		for n := 0; n < maxFrames/2 && len(ask) > 0; n++ {
			id := ask[0]
			ask = ask[1:]
			d.b = appendFrame(d.b, frameForget, 0, func(b []byte) []byte { return append(b, id[:]...) })
		}
		if p.post(d) != nil {
			break
		}
	}
	return bytes
}

// forgotten does what the other process says of a segment: it is known here no more, or is
// there no more. It is unmapped now, or with the last array in it.
func (p *Peer) forgotten(f frame) error {
	id, err := readID(f.payload)
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.declined, id)
	h := p.held[id]
	unmap := false
	if h != nil {
		if h.forgotten = true; h.arrays == 0 {
			delete(p.held, id)
			unmap = true
		}
	}
	p.mu.Unlock()
	if unmap {
		h.unmap()
	}
	return nil
}

// forget does what the other process asks: the segment's descriptor is sent again before
// the next array in it.
func (p *Peer) forget(f frame) error {
	id, err := readID(f.payload)
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.sent, id)
	d := p.newDatagram()
	d.b = appendFrame(d.b, frameForgotten, 0, func(b []byte) []byte { return append(b, id[:]...) })
	return p.post(d)
}

// maxChecked bounds the segments of a peer that one look checks; the order is random, so
// that all have their turn.
const maxChecked = 256

// sweep ends what is over: segments of this process that are there no more, mappings of the
// other's that are idle.
func (p *Peer) sweep(now time.Time) {
	var gone []segment.ID
	p.mu.Lock()
	checked := 0
	for id, k := range p.sent {
		if checked++; checked > maxChecked || len(gone) == maxFrames/2 {
			break
		}
		if k.gone() {
			gone = append(gone, id)
			delete(p.sent, id)
		}
	}
	if len(gone) > 0 {
		d := p.newDatagram()
		for _, id := range gone {
			d.b = appendFrame(d.b, frameGone, 0, func(b []byte) []byte { return append(b, id[:]...) })
		}
		_ = p.post(d) // over, if it fails
	} else {
		p.mu.Unlock()
	}
	p.forgetIdle(func(h *held) bool { return now.Sub(h.idle) > p.node.options.Idle })
}
