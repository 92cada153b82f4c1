package share

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"
)

// datagram is a message to send, with the descriptor of its segment frame.
type datagram struct {
	b    []byte
	home *[]byte // the pooled memory of b
	file *os.File
}

func (d *datagram) end() {
	if d.file != nil {
		_ = d.file.Close()
	}
	*d.home = d.b
	buffers.Put(d.home)
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, 512)
	return &b
}}

// sendQueue holds the datagrams to send, in order. The goroutine that adds a datagram also sends, until
// the queue is empty or the socket is full, unless another goroutine is sending. If the socket is full, a
// new goroutine sends the rest and ends when the queue is empty. Therefore no caller waits for a peer that
// does not read.
type sendQueue struct {
	waiting []datagram
	bytes   int
	files   int
	sending bool
}

// maxQueuedFiles is the maximum number of queued descriptors for one peer.
const maxQueuedFiles = 64

func (q *sendQueue) clear() {
	first := 0
	if q.sending {
		first = 1 // the sending goroutine owns it
	}
	for i := first; i < len(q.waiting); i++ {
		q.waiting[i].end()
	}
	q.waiting = q.waiting[:min(first, len(q.waiting))]
}

func (p *Peer) newDatagram() datagram {
	home := buffers.Get().(*[]byte) //nolint:forcetypeassert // the pool makes nothing else
	return datagram{b: (*home)[:0], home: home}
}

// postFrame posts a datagram of one frame, as post does. p.mu is held; postFrame unlocks it.
func (p *Peer) postFrame(kind frameKind, call uint64, payload func([]byte) []byte) error {
	d := p.newDatagram()
	d.b = appendFrame(d.b, kind, call, payload)
	return p.post(d)
}

// post sends a datagram, or queues it for the sending goroutine, in the order of the calls. p.mu is held;
// post unlocks it. post takes over the datagram.
func (p *Peer) post(d datagram) error {
	if p.err != nil {
		err := p.err
		p.mu.Unlock()
		d.end()
		return err
	}
	if len(p.ended) > 0 {
		p.appendEnded(&d)
	}
	q := &p.queue
	q.waiting = append(q.waiting, d)
	q.bytes += len(d.b)
	if d.file != nil {
		q.files++
	}
	if q.bytes > p.node.options.MaxQueued || q.files > maxQueuedFiles {
		bytes, files := q.bytes, q.files
		p.mu.Unlock()
		err := opError("connection", ErrProtocol, "%v does not read: %d bytes and %d descriptors are queued for it", p.credentials, bytes, files)
		p.fail(err)
		return err
	}
	if q.sending {
		p.mu.Unlock()
		return nil
	}
	q.sending = true
	err := p.drain(false)
	return err
}

// drain sends the queued datagrams. p.mu is held; drain unlocks it. The caller has set sending.
func (p *Peer) drain(wait bool) error {
	q := &p.queue
	for len(q.waiting) > 0 {
		d := q.waiting[0]
		if p.err != nil {
			break
		}
		p.mu.Unlock()
		sent, err := p.link.send(d.b, d.file, wait)
		if err != nil {
			p.lost(err)
		}
		p.mu.Lock()
		if !sent && err == nil {
			p.mu.Unlock()
			go func() {
				p.mu.Lock()
				_ = p.drain(true)
			}()
			return nil
		}
		q.bytes -= len(d.b)
		if d.file != nil {
			q.files--
		}
		d.end()
		n := copy(q.waiting, q.waiting[1:])
		q.waiting[n] = datagram{}
		q.waiting = q.waiting[:n]
	}
	q.sending = false
	if p.err != nil {
		q.clear()
	}
	err := p.err
	p.mu.Unlock()
	return err
}

// introduce adds the segment of a lease to a datagram, unless it was sent to the other process before.
// p.mu is held.
func (p *Peer) introduce(d *datagram, l *lease) error {
	if p.err != nil {
		return p.err
	}
	id := l.d.segment.id
	if _, ok := p.sent[id]; ok {
		return nil
	}
	if len(p.sent) >= p.node.options.MaxSegments {
		return opError("share", ErrLimit, "%v has %d segments of this process, the maximum; raise Options.MaxSegments", p.credentials, len(p.sent))
	}
	file, err := l.memory.file()
	if errors.Is(err, errors.ErrUnsupported) { // memory of a driver
		handle, err := l.memory.segment.Handle()
		if err != nil {
			return &OpError{Op: "share", Kind: ErrNotShared, Err: err}
		}
		p.sent[id] = l.memory
		d.b = appendFrame(d.b, frameDriver, 0, func(b []byte) []byte {
			return append(appendSegment(b, &l.d.segment), handle...)
		})
		return nil
	}
	if err != nil {
		return &OpError{Op: "share", Kind: ErrNotShared, Err: err}
	}
	p.sent[id] = l.memory
	d.file = file
	d.b = appendFrame(d.b, frameSegment, 0, func(b []byte) []byte { return appendSegment(b, &l.d.segment) })
	return nil
}

// reportDelay is the maximum time for which the report of an ended lease waits for further reports.
const reportDelay = 2 * time.Millisecond

// reportLinger is the number of times that the timer fires without a report before it stops. Starting the
// timer wakes a thread, which would otherwise happen for each array.
const reportLinger = 8

// noteEnded records that a lease of the other process has ended here. p.mu is held.
func (p *Peer) noteEnded(serial uint64) {
	if p.err != nil {
		return
	}
	p.ended = append(p.ended, serial)
	p.startReporting()
}

// startReporting starts the timer that reports ended leases. p.mu is held.
func (p *Peer) startReporting() {
	p.idleReports = 0
	if p.reporting {
		return
	}
	p.reporting = true
	if p.reportTimer == nil {
		p.reportTimer = time.AfterFunc(reportDelay, p.reportEnded)
	} else {
		p.reportTimer.Reset(reportDelay)
	}
}

// reportEnded is the callback of reportTimer. It reports the ended leases that no other message has
// carried.
func (p *Peer) reportEnded() {
	p.mu.Lock()
	for _, o := range p.marked {
		if p.claims.unmark(o) {
			p.ended = append(p.ended, o.lent.serial)
		}
	}
	clear(p.marked)
	p.marked = p.marked[:0]
	for len(p.ended) > 0 && p.err == nil && !p.queue.sending {
		_ = p.post(p.newDatagram())
		p.mu.Lock()
	}
	p.idleReports++
	// If the peer does not read, further reports wait in p.ended.
	if p.reporting = p.err == nil && (len(p.ended) > 0 || p.idleReports < reportLinger); p.reporting {
		p.reportTimer.Reset(reportDelay)
	}
	closing := p.closing
	p.mu.Unlock()
	if closing {
		p.endIfIdle()
	}
}

// appendEnded adds the reports of ended leases to a datagram, as many as fit. p.mu is held.
func (p *Peer) appendEnded(d *datagram) {
	n := min(len(p.ended), releaseBatch, (maxDatagram-len(d.b)-frameHeader)/8)
	p.reported += uint64(n)
	d.b = appendFrame(d.b, frameReleased, 0, func(b []byte) []byte {
		for _, serial := range p.ended[:n] {
			b = binary.LittleEndian.AppendUint64(b, serial)
		}
		return b
	})
	p.ended = p.ended[:copy(p.ended, p.ended[n:])]
}
