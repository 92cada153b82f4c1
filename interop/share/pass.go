package share

import (
	"context"
	"slices"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// While the maker of an array lives, the maker passes it on: a process that opened the array asks
// the maker for a handle of it, or of a part of it. So a lease never depends on a process in
// between, and a maker that opens such a handle gets its own memory without a second mapping.
//
// Once the maker's process has ended, nothing allocates from or frees into its segments any more.
// Each process that has an array open there then lends it like its own memory ([memory]).

// borrowedBuffers are those of opened arrays, over all connections.
var borrowedBuffers = struct {
	mu sync.Mutex
	m  map[memmgr.Buffer]*opened
}{m: map[memmgr.Buffer]*opened{}}

func (o *opened) note() {
	borrowedBuffers.mu.Lock()
	defer borrowedBuffers.mu.Unlock()
	borrowedBuffers.m[o.buffer] = o
}

func (o *opened) forget() {
	borrowedBuffers.mu.Lock()
	defer borrowedBuffers.mu.Unlock()
	delete(borrowedBuffers.m, o.buffer)
}

// openedFrom finds what was opened as this buffer; nil for one of this process's own.
func openedFrom(b memmgr.Buffer) *opened {
	borrowedBuffers.mu.Lock()
	defer borrowedBuffers.mu.Unlock()
	return borrowedBuffers.m[b]
}

// AudienceOf tells what processes other than its maker may do with the memory of a buffer,
// whether this process or another made it; ok is false for memory that cannot be shared.
// Any goroutine.
func AudienceOf(b memmgr.Buffer) (a segment.Audience, ok bool) {
	if !b.Valid() {
		return 0, false
	}
	if o := openedFrom(b); o != nil {
		return o.held.facts.audience, true
	}
	size := b.Size()
	if size == memmgr.UnknownSize {
		return 0, false
	}
	s, _, ok := segment.Find(b.Address(), size)
	if !ok {
		return 0, false
	}
	return s.Audience(), true
}

// pass asks the maker of an opened array for a handle of it.
func (o *opened) pass(ctx context.Context, op string, a *usmarray.Array) (Handle, error) {
	if err := a.Synchronize(ctx); err != nil {
		return Handle{}, withOp(op, err)
	}
	d := description{
		segment: o.held.facts, offset: o.lent.offset, size: o.lent.size, serial: o.lent.serial,
		dtype: a.DataType(), readOnly: o.lent.readOnly || a.ReadOnly(), padded: a.Padded(), layout: a.Layout(),
	}
	answer, err := o.peer.ask(ctx, op, framePass, func(b []byte) []byte { return appendDescription(b, &d) })
	if err != nil {
		return Handle{}, err
	}
	if wrong := o.peer.notAsked(&answer.handle, &d); wrong != "" {
		o.peer.fail(opError("connection", ErrProtocol, "%v: a handle was asked for, and one came with another %s", o.peer.credentials, wrong))
		return Handle{}, withOp(op, o.peer.Err())
	}
	return answer.handle, nil
}

// notAsked tells in what a handle differs from what its maker was asked for; "" for nothing.
// Rights may be fewer. The maker of a connection that it made itself has an address that nobody
// here knows.
func (p *Peer) notAsked(h *Handle, d *description) string {
	got := &h.d
	switch {
	case p.address != "" && h.maker != p.address:
		return "maker"
	case got.segment != d.segment:
		return "segment"
	case got.offset != d.offset || got.size != d.size:
		return "part of it"
	case got.dtype != d.dtype:
		return "type"
	case got.padded != d.padded || got.layout.Offset() != d.layout.Offset() ||
		!slices.Equal(got.layout.Shape(), d.layout.Shape()) || !slices.Equal(got.layout.Strides(), d.layout.Strides()):
		return "layout"
	case d.readOnly && !got.readOnly:
		return "right, to write"
	}
	return ""
}

// The part of Options.MaxUnopened that the handles may take which other processes asked for: one
// of them, and all. They outlive the connection, since whoever passed a handle on may go. So it
// is the process that they are counted for, however often that connects anew; and the bound of
// all leaves the rest to this process.
const (
	maxPassedPart = 16
	maxPassedAll  = 2
)

// process is who passes on, over all of its connections. One whose number is not known, since it
// is of another namespace, is its connection.
type process struct {
	pid   int
	uid   uint32
	alone *Peer
}

func (p *Peer) process() process {
	if p.credentials.PID <= 0 {
		return process{alone: p}
	}
	return process{pid: p.credentials.PID, uid: p.credentials.UID}
}

// pass answers a process that wants to pass on what it has open.
func (p *Peer) pass(f frame) error {
	d, err := readDescription(f.payload)
	if err != nil {
		return err
	}
	h, err := p.node.passFor(p, &d)
	if err != nil {
		return p.refuse(f.call, err)
	}
	p.mu.Lock()
	answer := p.newDatagram()
	answer.b = appendFrame(answer.b, framePassed, f.call, func(b []byte) []byte { return append(b, h.encoded...) })
	return p.post(answer)
}

// passFor makes a handle of what a process has open, with no more rights than it has.
func (n *node) passFor(p *Peer, d *description) (Handle, error) {
	const op = "Export"
	if n.maker == "" {
		return Handle{}, opError(op, ErrNotShared, "its maker dialled, and listens nowhere: it cannot be passed on")
	}
	l, err := n.leases.again(op, p, d)
	if err != nil {
		return Handle{}, err
	}
	var h Handle
	err = n.leases.add(op, l, &n.options, func(d *description, at place) string {
		h = makeHandle(n.maker, d, at)
		return h.encoded
	})
	if err != nil {
		l.release()
		return Handle{}, err
	}
	n.startClock()
	return h, nil
}

// again makes a lease beside one that a process has open, not yet in the table.
func (t *leaseTable) again(op string, p *Peer, d *description) (*lease, error) {
	t.mu.Lock()
	defer t.unlock()
	t.find(p) // it may be one that was offered
	open := t.all[d.serial]
	switch {
	case open == nil || !open.opened || open.holder != p:
		return nil, opError(op, ErrStale, "lease %d is over", d.serial)
	case d.segment != open.d.segment || d.offset != open.d.offset || d.size != open.d.size:
		return nil, opError(op, ErrHandle, "it describes other memory than lease %d is for", d.serial)
	}
	if err := retainTwice(op, open.buffer); err != nil {
		return nil, err
	}
	l := &lease{d: *d, memory: open.memory, buffer: open.buffer, asker: p.process()}
	l.d.readOnly = d.readOnly || open.d.readOnly
	return l, nil
}
