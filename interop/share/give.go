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

// Give hands an array over to the other process: when it returns nil, the array is open
// there, under a lease of its own, and waits for [Peer.Receive] with the label (at most 255
// bytes), which says what it is. It waits for work that is pending on the array first.
// The caller keeps its own array. One that was received is not handed on like this while its maker
// lives, since its lease would be this process's alone: [Server.Export] has its maker make a
// handle, or Options.CopyInto has it go by value.
//
// When the context ends first, the array may have arrived; its lease is over when the
// other process releases it, as ever. Errors: ErrNotShared, here or there, ErrLimit,
// ErrClosed.
func (p *Peer) Give(ctx context.Context, label string, a *usmarray.Array) error {
	const op = "Give"
	if len(label) > maxName {
		return opError(op, ErrLimit, "a label of %d bytes, and the longest has %d", len(label), maxName)
	}
	l, err := p.node.leaseOf(ctx, op, a, ExportOptions{To: p})
	if err != nil {
		return err
	}
	if err := p.node.leases.add(op, l, &p.node.options, nil); err != nil {
		l.release()
		if over := p.Err(); over != nil { // says more
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

// taken opens an array that is handed over, and answers.
func (p *Peer) taken(f frame) error {
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

var errClosedThere = opError("Give", ErrClosed, "the connection was closed there")

// accept is adopt for what nobody here asked for.
func (p *Peer) accept(d *description) (*usmarray.Array, error) {
	p.mu.Lock()
	err := p.noGifts()
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return p.adopt(d)
}

// noGifts tells why nothing is taken that the other process hands over, if so. Under mu.
func (p *Peer) noGifts() error {
	switch {
	case p.closing:
		return errClosedThere
	case !p.receives:
		return opError("Give", ErrRefused, "nobody there would receive it: the server has no Options.Connected, or made the connection to open handles")
	case len(p.inbox) >= p.node.options.MaxGiven:
		return opError("Give", ErrLimit, "%d arrays wait to be received there, Options.MaxGiven", p.node.options.MaxGiven)
	}
	return nil
}

// wake tells those who wait for a gift to look. Under mu.
func (p *Peer) wake() {
	if p.waiting != nil {
		close(p.waiting)
		p.waiting, p.waiters = nil, 0
	}
}

// waitNoMore is for one that gave up waiting for a gift. With the last of them nobody waits.
func (p *Peer) waitNoMore(waiting chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting != waiting {
		return // they were all woken
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

// Receive returns the next array that the other process handed over ([Peer.Give]), with an
// owner of its own, and its label: in the order in which they came. Those that came before
// the connection was over are still received afterwards, unless it was closed here; then
// the error is the connection's.
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
