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

// held is a segment of the other process that this process has a descriptor or a driver's handle of.
// Only the reading goroutine of the connection maps it.
type held struct {
	facts     segmentFacts
	file      *os.File            // nil for memory of a driver
	info      os.FileInfo         // of the file
	handle    []byte              // the driver's handle, instead of the file
	maps      [2]*segment.Mapping // [0] writable, [1] read-only; nil until an array needs it
	arrays    int                 // number of open arrays in the segment
	idle      time.Time           // when the last array was released
	asked     bool                // frameForget was sent and not answered yet
	forgotten bool                // the other process has dropped it, or has freed the segment
	lentAs    segment.ID          // the ID under which this process lends it; zero if it does not
	unmapped  atomic.Bool
}

// opened is an open array of another process. It ends with the last reference of its buffer.
type opened struct {
	peer   *Peer
	held   *held
	lent   lent
	buffer memmgr.Buffer // the zero Buffer until it is made

	slot  uint16 // slot of the board, if the array was opened from there
	claim claim  // zero if it was not
}

// lent is the part of a segment that a lease covers.
type lent struct {
	offset, size uint64 // bytes
	serial       uint64 // of the lease
	readOnly     bool
}

func lentOf(d *description) lent { return lent{d.offset, d.size, d.serial, d.readOnly} }

// heldFiles counts the descriptors of segments of other processes, over all connections.
var heldFiles atomic.Int64

// same reports whether other is the same memory as h.
func (h *held) same(other *held) bool {
	if h.facts != other.facts || (h.file == nil) != (other.file == nil) {
		return false
	}
	// Handles are not compared: a driver may make a new one each time.
	return h.file == nil || os.SameFile(h.info, other.info)
}

// addSegment records a segment that the other process has sent, or declines it. addSegment takes over the
// descriptor. It is a memory file, so that closing it does not wait for the other process.
func (p *Peer) addSegment(h *held) (err error) {
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
	case len(p.calls) == 0:
		declined = opError("Open", ErrRefused, "no call of this process waits for an array in the segment")
	case len(p.held) >= p.node.options.MaxSegments:
		declined = opError("Open", ErrLimit, "%d segments of %v are open in this process, the maximum; raise Options.MaxSegments", len(p.held), p.credentials)
	case h.file != nil && heldFiles.Add(1) > maxHeld():
		heldFiles.Add(-1)
		declined = opError("Open", ErrLimit, "%d descriptors of segments of other processes are open in this process, half of its limit; raise RLIMIT_NOFILE", heldFiles.Load())
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

// decline records a segment that this process cannot keep, and the reason. Opening an array in it fails
// with the reason until the other process has confirmed (frameForgotten) that it will send the segment
// again.
func (p *Peer) decline(id segment.ID, why error) error {
	p.mu.Lock()
	if p.declined[id] == nil && len(p.declined) >= p.node.options.MaxSegments {
		p.mu.Unlock()
		return fmt.Errorf("segment %v: %d segments were already declined, the maximum", id, p.node.options.MaxSegments)
	}
	p.declined[id] = why
	return p.postFrame(frameForget, 0, func(b []byte) []byte { return append(b, id[:]...) })
}

// openArray opens the array of a new lease. Only the reading goroutine calls openArray. If it fails, the lease
// has ended, or the connection ends because of ErrProtocol.
func (p *Peer) openArray(d *description) (*usmarray.Array, error) {
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
		return nil, opError(op, ErrProtocol, "an array in segment %v, which was not sent before", d.segment.id)
	case h.facts != d.segment:
		p.mu.Unlock()
		return nil, opError(op, ErrProtocol, "an array describes segment %v with other properties than before", d.segment.id)
	case p.opened >= p.node.options.MaxLeases:
		refusal = opError(op, ErrLimit, "%d arrays of %v are open in this process, the maximum; raise Options.MaxLeases", p.opened, p.credentials)
	}
	if refusal != nil {
		p.noteEnded(d.serial)
		p.mu.Unlock()
		return nil, refusal
	}
	h.arrays++ // keeps the segment mapped
	p.opened++
	p.mu.Unlock()
	m, err := p.mapped(h, d.readOnly || d.segment.audience == segment.PeersRead)
	if err != nil {
		(&opened{peer: p, held: h, lent: lentOf(d)}).end()
		return nil, &OpError{Op: op, Kind: kindOfMapping(err), Err: err}
	}
	return p.arrayOf(&opened{peer: p, held: h, lent: lentOf(d)}, m, d)
}

// arrayOf makes the array of a lease in the mapping m. The caller has counted the array in
// o.held.arrays, which keeps m mapped. If arrayOf fails, it ends the lease. Any goroutine may call it.
func (p *Peer) arrayOf(o *opened, m *segment.Mapping, d *description) (*usmarray.Array, error) {
	const op = "Open"
	buffer, err := memmgr.FromForeign(unsafe.Add(m.Data(), d.offset), d.size, memmgr.ForeignOptions{Place: m.Place(), Interprocess: true, Release: o.end})
	if err != nil {
		o.end()
		return nil, withOp(op, err)
	}
	o.buffer = buffer
	o.register()
	readOnly := m.ReadOnly() || d.readOnly // memory of a driver has no page protection
	if readOnly {
		buffer.SetReadOnly()
	}
	a, err := d.arrayOn(buffer, readOnly)
	if err != nil {
		buffer.Release() // ends the lease
		return nil, &OpError{Op: op, Kind: ErrHandle, Err: err}
	}
	return a, nil
}

// arrayOn makes the array in a buffer. It takes over a reference of the buffer unless it fails.
func (d *description) arrayOn(b memmgr.Buffer, readOnly bool) (*usmarray.Array, error) {
	options := make([]usmarray.Option, 0, 2)
	if readOnly {
		options = append(options, usmarray.ReadOnly())
	}
	if d.padded {
		options = append(options, usmarray.Padded())
	}
	return usmarray.FromBuffer(b, d.dtype, d.layout, options...)
}

// kindOfMapping returns ErrLimit if mapping failed because of a limit, else ErrNotShared.
func kindOfMapping(err error) error {
	if errors.Is(err, segment.ErrLimit) {
		return ErrLimit
	}
	return ErrNotShared
}

// end ends the lease. It may run on any thread.
func (o *opened) end() {
	p := o.peer
	if o.buffer != (memmgr.Buffer{}) {
		o.unregister()
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
		p.watch.Close() // fail left it open if the process was exiting
	}
	if closing && !over {
		p.endIfIdle()
	}
}

// mapIndex returns the index in maps of the mapping that an array needs.
func (h *held) mapIndex(readOnly bool) int {
	if readOnly && h.file != nil { // memory of a driver has one mapping
		return 1
	}
	return 0
}

// mapped returns the mapping that an array needs, and makes it if necessary. The caller is the reading
// goroutine and has counted the array in h.arrays, so that no other goroutine changes the mappings.
func (p *Peer) mapped(h *held, readOnly bool) (*segment.Mapping, error) {
	i := h.mapIndex(readOnly)
	if m := h.maps[i]; m != nil {
		return m, nil
	}
	o := &p.node.options
	a := segment.Attachment{File: h.file, Handle: h.handle, Size: h.facts.size, Audience: h.facts.audience, ReadOnly: i == 1}
	if h.handle != nil && (o.Queue == nil || o.Queue.IsHost()) {
		return nil, fmt.Errorf("the array is device memory of a driver; set Options.Queue to a queue on that device, or copy the array in the process that has it")
	}
	if h.facts.kind != syclobj.USMUnknown {
		switch {
		case o.Queue != nil && !o.Queue.IsHost():
			a.Queue, a.Kind = o.Queue, h.facts.kind
		case !o.AsHost:
			return nil, fmt.Errorf("the array is USM of kind %s, and this process has no queue for it; set Options.Queue, or Options.AsHost to open it as host memory", h.facts.kind)
		}
	}
	m, err := segment.Map(a)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	h.maps[i] = m
	p.mu.Unlock()
	return m, nil
}

// unmap unmaps the segment and closes its descriptor. The caller has removed it from Peer.held.
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

// takeIdle removes all segments without open arrays from a connection that has ended, and returns them.
// p.mu is held.
func (p *Peer) takeIdle() (all []*held) {
	for id, h := range p.held {
		if h.arrays == 0 {
			delete(p.held, id)
			all = append(all, h)
		}
	}
	return all
}

// Trim unmaps the segments of the other process in which no array is open, without waiting for
// Options.Idle. It returns their total size in bytes. They are unmapped as soon as the other process has
// answered.
func (p *Peer) Trim() (bytes uint64) {
	return p.forgetIdle(func(*held) bool { return true })
}

// forgetIdle asks the other process to drop the idle segments for which matches returns true from
// its list of sent ones. They are unmapped when it has confirmed that.
func (p *Peer) forgetIdle(matches func(*held) bool) (bytes uint64) {
	p.mu.Lock()
	var ask []segment.ID
	for id, h := range p.held {
		if h.arrays == 0 && !h.asked && matches(h) {
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

// forgotten handles frameForgotten and frameGone: the other process has dropped a segment from its list
// of sent ones, or has freed it. The segment is unmapped now, or when its last array is released.
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

// forget handles frameForget: the descriptor of the segment will be sent again before the next array in
// it.
func (p *Peer) forget(f frame) error {
	id, err := readID(f.payload)
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.sent, id) // under the same lock as the answer: a segment that is sent again follows the answer
	return p.postFrame(frameForgotten, 0, func(b []byte) []byte { return append(b, id[:]...) })
}

// maxChecked is the maximum number of segments of a peer that one sweep checks. The iteration order of
// maps is random, so that every segment is checked after some time.
const maxChecked = 256

// sweep reports segments of this process that were freed, and unmaps segments of the other process that
// are idle for longer than Options.Idle.
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
		_ = p.post(d) // if it fails, the connection has ended
	} else {
		p.mu.Unlock()
	}
	p.forgetIdle(func(h *held) bool { return now.Sub(h.idle) > p.node.options.Idle })
}
