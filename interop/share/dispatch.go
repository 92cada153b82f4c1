package share

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/usmbridge/usmbridge/usmarray"
)

// If a socket is closed, its process may be exiting. lost waits for the end of the process for moment, or
// for longestExit if the process is known to be exiting.
const (
	moment      = 20 * time.Millisecond
	longestExit = time.Second
)

// lost ends a connection whose socket is closed, or broken. A process that ends closes its sockets
// before its pidfd reports the end. lost waits for the report, so that the error is ErrDied. The wait
// is bounded: leases of the process must not last as long as its exit, which takes seconds if
// the kernel frees gigabytes. After that the error is ErrClosed, and guard goes on waiting.
func (p *Peer) lost(err error) {
	if errors.Is(err, ErrProtocol) {
		p.fail(withOp("connection", err))
		return
	}
	if !errors.Is(err, os.ErrClosed) {
		most := moment
		if ending(p.credentials.PID) {
			most = longestExit
			p.mu.Lock()
			p.exiting = p.exiting || p.err == nil
			p.mu.Unlock()
		}
		select {
		case <-p.done:
		case <-time.After(most):
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the other process closed the connection")
	}
	p.fail(&OpError{Op: "connection", Kind: ErrClosed, Err: fmt.Errorf("%v: %w", p.credentials, err)})
}

// datagram handles the frames of a datagram. file is its descriptor, or nil. missing reports that it had
// one that this process could not receive, for lack of free descriptors. An error ends the connection.
func (p *Peer) datagram(b []byte, file *os.File, missing bool) (err error) {
	defer func() {
		if file != nil {
			_ = file.Close()
		}
		if (file != nil || missing) && err == nil {
			err = errors.New("a descriptor without a segment frame or a board frame")
		}
	}()
	for range maxFrames {
		var f frame
		if f, b, err = nextFrame(b); err != nil {
			return err
		}
		switch f.kind {
		case frameSegment:
			shown := file
			file = nil
			err = p.handleSegment(f, shown, missing)
			missing = false
		case frameBoard:
			shown := file
			file, missing = nil, false
			err = p.handleBoard(f, shown)
		default:
			err = p.frame(f)
		}
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return nil
		}
	}
	return fmt.Errorf("more than %d frames in one datagram", maxFrames)
}

// handleSegment handles frameSegment. It takes over the descriptor.
func (p *Peer) handleSegment(f frame, file *os.File, missing bool) error {
	facts, err := readSegment(f.payload)
	switch {
	case err == nil && missing:
		return p.decline(facts.id, opError("Open", ErrLimit, "this process has no free descriptor for a segment of %v; raise RLIMIT_NOFILE", p.credentials))
	case err == nil && file == nil:
		err = errors.New("a segment frame without a descriptor")
	}
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	return p.addSegment(&held{facts: facts, file: file, info: info})
}

// frame handles a frame without a descriptor.
func (p *Peer) frame(f frame) error {
	switch f.kind {
	case frameDriver:
		facts, handle, err := readDriver(f.payload)
		if err != nil {
			return err
		}
		return p.addSegment(&held{facts: facts, handle: handle})
	case frameOpen:
		h, err := ParseHandle(f.payload)
		if err != nil {
			return p.refuse(f.call, err)
		}
		l, pending, err := p.node.leases.open("Open", f.payload, h.d.serial, p, &p.node.options)
		if bad := p.lendAfter(f.call, l, pending, err); bad != nil || err != nil {
			return bad
		}
		return p.showBoard()
	case frameAttach:
		name, err := readName(f.payload)
		if err != nil {
			return err
		}
		l, pending, err := p.node.attach(p, name, false)
		return p.lendAfter(f.call, l, pending, err)
	case frameWait:
		after, name, err := readWait(f.payload)
		if err != nil {
			return err
		}
		return p.node.wait(newerWait{p, f.call, name, after})
	case frameCancel:
		if p.node.cancelWait(p, f.call) {
			return p.refuse(f.call, opError("WaitNewer", ErrClosed, "the wait was canceled"))
		}
		return nil
	case frameNames:
		after, err := readName(f.payload)
		if err != nil {
			return err
		}
		return p.answerNames(f.call, p.node.namesAfter(after))
	case framePass:
		return p.pass(f)
	case frameReleased:
		var serials [releaseBatch]uint64
		all, err := readSerials(f.payload, serials[:0])
		if err != nil {
			return err
		}
		p.node.leases.end(p, all)
		p.endIfClosing()
		return nil
	case frameForget:
		return p.forget(f)
	case frameForgotten, frameGone:
		return p.forgotten(f)
	}
	return p.answered(f)
}

// answered handles the answer to a call of this process.
func (p *Peer) answered(f frame) error {
	switch f.kind {
	case frameRefused, frameOpened, frameNewer, frameListed, framePassed:
		if err := p.expected(f); err != nil {
			return err
		}
	}
	switch f.kind {
	case frameRefused:
		refusal, err := readRefusal(f.payload)
		if err == nil {
			p.answerTo(f.call, answer{err: refusal})
		}
		return err
	case frameOpened, frameNewer:
		var sequence uint64
		var d description
		var err error
		if f.kind == frameNewer {
			sequence, d, err = readNewer(f.payload)
		} else {
			d, err = readDescription(f.payload)
		}
		if err != nil {
			return err
		}
		a, err := p.openArray(&d)
		if err != nil && errors.Is(err, ErrProtocol) {
			return err
		}
		p.answerTo(f.call, answer{array: a, sequence: sequence, err: err})
		return nil
	case frameListed:
		names, err := readNames(f.payload)
		if err == nil {
			p.answerTo(f.call, answer{names: names})
		}
		return err
	case framePassed:
		h, err := ParseHandle(f.payload)
		if err == nil {
			p.answerTo(f.call, answer{handle: h})
		}
		return err
	}
	return fmt.Errorf("a frame of kind %d after the greeting", f.kind)
}

// endIfClosing calls endIfIdle if this process has closed the connection.
func (p *Peer) endIfClosing() {
	p.mu.Lock()
	closing := p.closing
	p.mu.Unlock()
	if closing {
		p.endIfIdle()
	}
}

// refuse answers a call of the other process with an error.
func (p *Peer) refuse(id uint64, err error) error {
	p.mu.Lock()
	return p.postFrame(frameRefused, id, func(b []byte) []byte { return appendRefusal(b, err) })
}

// lendAfter answers a request for a lease. If err is not nil, it refuses the request. If pending is not
// nil, it answers when the work that is pending on that array is done, and then releases pending.
func (p *Peer) lendAfter(id uint64, l *lease, pending *usmarray.Array, err error) error {
	if err != nil {
		return p.refuse(id, err)
	}
	if pending == nil {
		return p.lend(id, l)
	}
	p.mu.Lock()
	most := p.waits >= maxCalls
	if !most {
		p.waits++
	}
	p.mu.Unlock()
	if most {
		pending.Release()
		p.node.leases.end(p, []uint64{l.d.serial})
		return p.refuse(id, opError("Open", ErrLimit, "%d calls of this process wait for work on arrays, the maximum", maxCalls))
	}
	go func() {
		err := pending.Synchronize(p.life)
		pending.Release()
		p.mu.Lock()
		p.waits--
		p.mu.Unlock()
		if err != nil {
			p.node.leases.end(p, []uint64{l.d.serial})
			_ = p.refuse(id, err) // if it fails, the connection has ended
			return
		}
		_ = p.lend(id, l) // if it fails, the connection has ended
	}()
	return nil
}

// lend answers a request with the array of a new lease.
func (p *Peer) lend(id uint64, l *lease) error {
	p.mu.Lock()
	d := p.newDatagram()
	if err := p.introduce(&d, l); err != nil {
		p.mu.Unlock()
		d.end()
		p.node.leases.end(p, []uint64{l.d.serial})
		return p.refuse(id, err)
	}
	kind := frameOpened
	if l.sequence != 0 {
		kind = frameNewer
	}
	d.b = appendFrame(d.b, kind, id, func(b []byte) []byte {
		if l.sequence != 0 {
			b = binary.LittleEndian.AppendUint64(b, l.sequence)
		}
		return appendDescription(b, &l.d)
	})
	return p.post(d)
}

// answerNames answers with as many of the names as fit into one datagram.
func (p *Peer) answerNames(id uint64, names []string) error {
	p.mu.Lock()
	return p.postFrame(frameListed, id, func(b []byte) []byte {
		for _, name := range names {
			if len(b)+1+len(name) > maxDatagram/2 {
				break
			}
			b = appendText(b, name)
		}
		return b
	})
}
