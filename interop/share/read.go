package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// One goroutine at a time reads from the other process. That is the connection's own,
// unless one that waits for an answer, or for a gift, finds that nobody reads: then it
// reads for itself, and a round trip wakes one goroutine on each side and no other. So
// that it finds that, the connection's own leaves the reading for a moment after it
// brought somebody what they alone were waiting for, and for as long as they come back.

// leave is how long the connection's own goroutine leaves the reading to others. What comes
// meanwhile and nobody waits for is read after that time at most.
const leave = 2 * time.Millisecond

// read is the connection's own goroutine.
func (p *Peer) read() {
	timer := time.NewTimer(leave)
	for {
		select {
		case <-p.reading:
		case <-p.done:
			return
		}
		for {
			p.brought = false
			if p.readOne() != nil {
				return
			}
			if p.brought && !p.somebodyWaits() {
				break
			}
		}
		p.reading <- struct{}{}
		for came := ^uint64(0); came != p.came.Load(); {
			came = p.came.Load()
			timer.Reset(leave)
			select {
			case <-timer.C:
				continue
			case <-p.resume:
			case <-p.done:
				return
			}
			break
		}
	}
}

// readFor reads until ready, in the place of the connection's own goroutine, if nobody reads.
// It may return before, when the context or the connection ends.
func (p *Peer) readFor(ctx context.Context, ready func() bool) {
	select {
	case <-p.reading:
	default:
		return
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, p.interrupt)()
	}
	for !ready() && ctx.Err() == nil {
		if p.readOne() != nil {
			return // nobody reads any more
		}
	}
	p.came.Add(1)
	p.reading <- struct{}{}
	if p.somebodyWaits() { // who came meanwhile counts on us
		select {
		case p.resume <- struct{}{}:
		default:
		}
	}
}

// interrupt has whoever reads look again at what they wait for.
func (p *Peer) interrupt() { p.link.interrupt() }

func (p *Peer) somebodyWaits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > 0 || p.waiting != nil
}

// readOne takes one datagram and does what it says. Nothing that it does waits for the other
// process: answers are queued. After an error the connection is over.
func (p *Peer) readOne() error {
	n, file, missing, err := p.link.receive(p.buffer)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.link.interrupted()
		return nil
	}
	if err != nil {
		p.lost(err)
		return err
	}
	err = p.datagram(p.buffer[:n], file, missing)
	if err != nil && !(isOver(err) && p.Err() != nil) {
		p.fail(&OpError{Op: "connection", Kind: ErrProtocol, Err: fmt.Errorf("%v: %w", p.credentials, err)})
	}
	return err
}
