package share

import (
	"context"
	"slices"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// A process that has opened an array can pass it on. As long as the maker of the array lives, it asks the
// maker for a handle of the array or of a part of it. Therefore no lease depends on a process in between,
// and a maker that opens such a handle gets its own memory without a second mapping.
//
// After the maker's process has ended, no allocator uses its segments. Each process that has an array
// open there then lends it like its own memory ([memory]).

// borrowedBuffers holds the buffers of the arrays that are open here, over all connections.
var borrowedBuffers = struct {
	mu sync.Mutex
	m  map[memmgr.Buffer]*opened
}{m: map[memmgr.Buffer]*opened{}}

func (o *opened) register() {
	borrowedBuffers.mu.Lock()
	defer borrowedBuffers.mu.Unlock()
	borrowedBuffers.m[o.buffer] = o
}

func (o *opened) unregister() {
	borrowedBuffers.mu.Lock()
	defer borrowedBuffers.mu.Unlock()
	delete(borrowedBuffers.m, o.buffer)
}

// openedFrom returns the opened array of another process that a buffer belongs to, or nil if the buffer is
// memory of this process.
func openedFrom(b memmgr.Buffer) *opened {
	borrowedBuffers.mu.Lock()
	defer borrowedBuffers.mu.Unlock()
	return borrowedBuffers.m[b]
}

// AudienceOf returns the access that processes other than its maker have to the memory of a buffer. This
// process or another one may be the maker. ok is false if the memory cannot be shared. AudienceOf may be
// called from any goroutine.
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
		o.peer.fail(opError("connection", ErrProtocol, "%v answered with a handle that differs from the request in its %s", o.peer.credentials, wrong))
		return Handle{}, withOp(op, o.peer.Err())
	}
	return answer.handle, nil
}

// notAsked returns the property in which a handle differs from the array that its maker was asked for, or
// "". The handle may have fewer rights. If the maker dialled this process, its address is not known here
// and is not compared.
func (p *Peer) notAsked(h *Handle, d *description) string {
	got := &h.d
	switch {
	case p.address != "" && h.maker != p.address:
		return "maker"
	case got.segment != d.segment:
		return "segment"
	case got.offset != d.offset || got.size != d.size:
		return "part of the segment"
	case got.dtype != d.dtype:
		return "type"
	case got.padded != d.padded || got.layout.Offset() != d.layout.Offset() ||
		!slices.Equal(got.layout.Shape(), d.layout.Shape()) || !slices.Equal(got.layout.Strides(), d.layout.Strides()):
		return "layout"
	case d.readOnly && !got.readOnly:
		return "right to write"
	}
	return ""
}

// Handles that other processes asked for take at most 1/maxPassedPart of Options.MaxUnopened for each
// process, and 1/maxPassedAll for all of them, so that the rest remains for this process. Such handles
// outlive the connection, because the process that passed one on may end. Therefore they are counted by
// process and not by connection.
const (
	maxPassedPart = 16
	maxPassedAll  = 2
)

// process identifies a process that asked for a handle, over all of its connections. A process in another
// PID namespace has no process ID here; it is identified by its connection.
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

// pass handles framePass: the other process asks for a handle of an array that it has open.
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
	return p.postFrame(framePassed, f.call, func(b []byte) []byte { return append(b, h.encoded...) })
}

// passFor makes a handle of an array that a process has open. The handle has no more rights than the lease
// of that process.
func (n *node) passFor(p *Peer, d *description) (Handle, error) {
	const op = "Export"
	l, err := n.leases.secondLease(op, p, d)
	if err != nil {
		return Handle{}, err
	}
	return n.handleOf(op, l)
}

// handleOf adds a lease to the table and returns its handle. It takes over the lease.
func (n *node) handleOf(op string, l *lease) (h Handle, err error) {
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

// secondLease makes a second lease of the memory that a process has open. The caller adds it to the table.
func (t *leaseTable) secondLease(op string, p *Peer, d *description) (*lease, error) {
	t.mu.Lock()
	defer t.unlock()
	open := t.all[d.serial]
	if open != nil && open.offeredTo == p {
		t.checkOffer(open) // p may have taken it, and released it
		open = t.all[d.serial]
	}
	switch {
	case open == nil || !open.opened || open.holder != p:
		return nil, opError(op, ErrStale, "lease %d has ended", d.serial)
	case d.segment != open.d.segment || d.offset != open.d.offset || d.size != open.d.size:
		return nil, opError(op, ErrHandle, "the array is not in the memory that lease %d covers", d.serial)
	}
	if err := retain(op, open.buffer); err != nil {
		return nil, err
	}
	l := &lease{d: *d, memory: open.memory, buffer: open.buffer, asker: p.process()}
	l.d.readOnly = d.readOnly || open.d.readOnly
	return l, nil
}
