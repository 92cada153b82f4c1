package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// One goroutine at a time reads from the other process. Usually this is the connection's own goroutine.
// A goroutine that waits for an answer reads itself if no other goroutine reads, so that a round trip wakes only one goroutine on each side. To make that possible, the
// connection's own goroutine stops reading for a moment after it delivered the only awaited message, and
// stays so as long as waiting goroutines read again within that time.

// readPause is the pause of the connection's own goroutine. A message that arrives in the meantime and is not
// awaited is read after at most this time.
const readPause = 2 * time.Millisecond

// read runs on the connection's own goroutine.
func (p *Peer) read() {
	timer := time.NewTimer(readPause)
	for {
		select {
		case <-p.reading:
		case <-p.done:
			return
		}
		for {
			p.delivered = false
			if p.readOne() != nil {
				return
			}
			if p.delivered && !p.hasWaiters() {
				break
			}
		}
		p.reading <- struct{}{}
		for reads := ^uint64(0); reads != p.waiterReads.Load(); {
			reads = p.waiterReads.Load()
			timer.Reset(readPause)
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

// readFor reads until ready returns true, if no other goroutine reads. It returns earlier if the context
// or the connection ends.
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
			return // the connection has ended
		}
	}
	p.waiterReads.Add(1)
	p.reading <- struct{}{}
	if p.hasWaiters() { // another goroutine began to wait meanwhile and could not read
		select {
		case p.resume <- struct{}{}:
		default:
		}
	}
}

// interrupt makes the reading goroutine check its condition again.
func (p *Peer) interrupt() { p.link.interrupt() }

// hasWaiters reports whether a goroutine waits for an answer.
func (p *Peer) hasWaiters() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > 0
}

// readOne reads and handles one datagram. It never waits for the other process: answers are queued.
// After an error the connection has ended.
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
	if err != nil && !(errors.Is(err, ErrClosed) && p.Err() != nil) {
		p.fail(&OpError{Op: "connection", Kind: ErrProtocol, Err: fmt.Errorf("%v: %w", p.credentials, err)})
	}
	return err
}
