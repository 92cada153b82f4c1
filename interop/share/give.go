package share

import (
	"context"
	"errors"

	"github.com/usmbridge/usmbridge/usmarray"
)

// gift is an array that the other process handed over.
type gift struct {
	label string
	array *usmarray.Array
}

// Give hands an array over to the other process, which receives it with [Peer.Receive], together with a
// label of at most 255 bytes. Give first waits for work that is pending on the array. When Give returns
// nil, the array is open in the other process under a lease of its own. The caller keeps its reference.
//
// An array whose maker is another process cannot be handed over as long as the maker lives
// (ErrNotShared). Use [Server.Export], which asks the maker for a handle, or set Options.CopyInto to send
// a copy.
//
// If the context ends first, the array may have been handed over all the same. Its lease then ends when
// the other process releases it. Errors: ErrNotShared if either process cannot map the memory, ErrRefused
// if the other process accepts no arrays, ErrLimit, ErrClosed.
func (p *Peer) Give(ctx context.Context, label string, a *usmarray.Array) error {
	const op = "Give"
	if len(label) > maxName {
		return opError(op, ErrLimit, "the label has %d bytes, want at most %d", len(label), maxName)
	}
	l, err := p.node.leaseOf(ctx, op, a, ExportOptions{To: p})
	if err != nil {
		return err
	}
	if err := p.node.leases.add(op, l, &p.node.options, nil); err != nil {
		l.release()
		if over := p.Err(); over != nil { // this error is more specific
			err = withOp(op, over)
		}
		return err
	}
	sent := false
	_, err = p.await(ctx, op, frameGive.answer(), func(c *call, id uint64) error {
		c.given = l.d.serial
		d := p.newDatagram()
		if err := p.introduce(&d, l); err != nil {
			p.mu.Unlock()
			d.end()
			return err
		}
		d.b = appendFrame(d.b, frameGive, id, func(b []byte) []byte {
			return appendDescription(appendText(b, label), &l.d)
		})
		sent = true
		return p.post(d)
	})
	if err != nil && !sent {
		p.node.leases.end(p, []uint64{l.d.serial})
	}
	return err
}

// handleGive handles frameGive: it opens an array that the other process hands over, and answers.
func (p *Peer) handleGive(f frame) error {
	label, d, err := readGive(f.payload)
	if err != nil {
		return err
	}
	a, err := p.accept(&d)
	if err != nil {
		if errors.Is(err, ErrProtocol) {
			return err
		}
		return p.refuse(f.call, err)
	}
	p.mu.Lock()
	if p.closing || p.err != nil {
		p.mu.Unlock()
		a.Release()
		return p.refuse(f.call, errClosedThere)
	}
	p.inbox = append(p.inbox, gift{label, a})
	p.delivered = p.delivered || p.waiting != nil
	p.wake()
	answer := p.newDatagram()
	answer.b = appendFrame(answer.b, frameTaken, f.call, nil)
	return p.post(answer)
}

var errClosedThere = opError("Give", ErrClosed, "the connection was closed by the receiver")

// accept opens a handed-over array as openArray does, if this process accepts such arrays.
func (p *Peer) accept(d *description) (*usmarray.Array, error) {
	p.mu.Lock()
	err := p.noGifts()
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.openArray(d)
}

// noGifts returns the reason why this process does not accept handed-over arrays, or nil if it does. The
// other process reports the text. p.mu is held.
func (p *Peer) noGifts() error {
	switch {
	case p.closing:
		return errClosedThere
	case !p.receives:
		return opError("Give", ErrRefused, "the receiver accepts no arrays on this connection; set Options.Connected there, or connect with Dial")
	case len(p.inbox) >= p.node.options.MaxGiven:
		return opError("Give", ErrLimit, "%d arrays wait to be received, the maximum; call Receive there, or raise Options.MaxGiven there", p.node.options.MaxGiven)
	}
	return nil
}

// wake wakes all goroutines that wait for a gift. p.mu is held.
func (p *Peer) wake() {
	if p.waiting != nil {
		close(p.waiting)
		p.waiting, p.waiters = nil, 0
	}
}

// waitNoMore is called by a goroutine that stops waiting for a gift without having been woken.
func (p *Peer) waitNoMore(waiting chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting != waiting {
		return // wake has reset the count
	}
	if p.waiters--; p.waiters == 0 {
		p.waiting = nil
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Receive returns the next array that the other process handed over ([Peer.Give]) and its label, in the
// order of arrival. It waits for an array if necessary. The caller owns a reference of the array. Arrays
// that arrived before the connection ended can still be received, unless this process closed the
// connection. Without such an array, Receive returns the error of the connection.
func (p *Peer) Receive(ctx context.Context) (label string, a *usmarray.Array, err error) {
	const op = "Receive"
	for {
		p.mu.Lock()
		if len(p.inbox) > 0 {
			g := p.inbox[0]
			p.inbox[0] = gift{}
			if p.inbox = p.inbox[1:]; len(p.inbox) == 0 {
				p.inbox = nil
			}
			p.mu.Unlock()
			return g.label, g.array, nil
		}
		if err := p.over(); err != nil {
			p.mu.Unlock()
			return "", nil, withOp(op, err)
		}
		if p.waiting == nil {
			p.waiting = make(chan struct{})
		}
		p.waiters++
		waiting := p.waiting
		p.mu.Unlock()
		p.readFor(ctx, func() bool { return isClosed(waiting) })
		select {
		case <-waiting:
		case <-ctx.Done():
			p.waitNoMore(waiting)
			return "", nil, withOp(op, ctx.Err())
		}
	}
}
