package share

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
	"github.com/usmbridge/usmbridge/interop/internal/poll"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Peer is a connection with one other process. Each side can open arrays of the other side. All methods may be called from any goroutine. A call that waits takes a context; it also
// ends when the connection ends.
type Peer struct {
	node        *node
	link        *link
	watch       *pidfd.Process
	credentials Credentials
	address     string // of the socket that this process dialled, as the listener named it; "" if the other process dialled
	closeLink   func() // closes link; called once

	// Guarded by the mutex of the node's leases.
	leases leaseList // leases of this process's memory that the other process holds
	closed bool      // no new lease is made for this peer
	board  *board    // the page on which handles are offered to this peer, or nil

	credits chan struct{} // one element for each pending call

	reading     chan struct{} // a token; the goroutine that holds it reads from the link
	resume      chan struct{} // wakes the connection's own goroutine, which then reads again
	waiterReads atomic.Uint64 // number of times that a waiting goroutine read instead
	buffer      []byte        // of the reading goroutine
	delivered   bool          // of the reading goroutine: it delivered an awaited message

	boardShown bool // of the reading goroutine: the board was sent to the peer, or could not be made

	life context.Context
	end  context.CancelFunc // of life

	mu          sync.Mutex
	err         error // the reason why the connection has ended, or nil
	exiting     bool  // the other process was exiting when its socket was found closed, before err was set
	done        chan struct{}
	closing     bool // no new calls; the connection ends with the last lease of either side
	lastCall    uint64
	calls       map[uint64]*call
	waits       int // number of answers that wait for work on an array
	queue       sendQueue
	sent        map[segment.ID]memory // segments of this process whose descriptors the other process has
	held        map[segment.ID]*held  // segments of the other process
	declined    map[segment.ID]error  // segments of the other process that were refused, and the reasons
	opened      int                   // number of open arrays in held
	claims      *claims               // the board of the other process, or nil
	ended       []uint64              // leases of the other process that have ended here and are not reported yet
	marked      []*opened             // arrays marked as released on the board; the maker may not have seen the mark yet
	reported    uint64                // number of ended leases that were reported in messages
	reporting   bool                  // reportTimer runs
	idleReports int                   // number of times that the timer fired since the last lease ended
	reportTimer *time.Timer
}

// maxCalls is the maximum number of pending calls of one side.
const maxCalls = 128

func newPeer(n *node, l *link, w *pidfd.Process, c Credentials, closeLink func()) *Peer {
	p := &Peer{
		node: n, link: l, watch: w, credentials: c, closeLink: closeLink, credits: make(chan struct{}, maxCalls),
		reading: make(chan struct{}, 1), resume: make(chan struct{}, 1), buffer: make([]byte, maxDatagram),
		done: make(chan struct{}), calls: map[uint64]*call{},
		sent: map[segment.ID]memory{}, held: map[segment.ID]*held{}, declined: map[segment.ID]error{},
	}
	p.reading <- struct{}{}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// call is a pending request.
type call struct {
	answer    chan answer
	expects   frameKind // kind of the answer; a refusal answers any call
	abandoned bool
}

type answer struct {
	array    *usmarray.Array
	sequence uint64 // of frameNewer
	names    []string
	handle   Handle
	err      error
}

// dispose releases an answer that is not needed.
func (a *answer) dispose() {
	if a.array != nil {
		a.array.Release()
	}
}

// Dial connects to a server, by the address that [Server.Address] returns or that [Listen] was given. Close
// the Peer after use. Errors: ErrAddress if no process listens there; ErrRefused if either process does not
// admit the other; ErrDied if the server's process has ended and a forked child still holds the listening
// socket; ErrLimit if the server has no place left, or if the kernel is still releasing descriptors that 64
// former servers sent on connections of this process (kernels before Linux 6.16).
func Dial(ctx context.Context, address string, o Options) (*Peer, error) {
	return connect(ctx, "Dial", address, newNode(o))
}

// Credentials returns the credentials of the other process.
func (p *Peer) Credentials() Credentials { return p.credentials }

// Done returns a channel that is closed when the connection has ended. Opened arrays stay valid.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err returns the reason why the connection has ended, or nil if it has not. The reason is ErrDied if
// the other process ended, ErrProtocol if it violated the protocol, and otherwise ErrClosed. If the exit
// of the other process takes longer than a second, Err returns ErrClosed until the process has ended,
// and ErrDied after that if one of its arrays is still open here.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Attach opens the array that the other process publishes under a name. The caller owns a reference of
// the result. The other process keeps the memory allocated until the last reference is released here.
// Errors: ErrName, ErrNotShared if this process cannot map the memory, ErrLimit, ErrClosed.
func (p *Peer) Attach(ctx context.Context, name string) (*usmarray.Array, error) {
	const op = "Attach"
	if len(name) > maxName {
		return nil, opError(op, ErrName, "the name has %d bytes, want at most %d", len(name), maxName)
	}
	a, err := p.ask(ctx, op, frameAttach, func(b []byte) []byte { return appendText(b, name) })
	return a.array, err
}

// WaitNewer waits until the other process has published an array under a name with a sequence number
// above after ([Server.Publish]), opens the newest one as [Peer.Attach] does, and returns it with its
// number. If after is 0, any published array is newer. If the name is not published yet, or was
// withdrawn, the call waits until it is published. Versions that were replaced before or during the call
// are skipped. A server that starts later at the same address has larger numbers, unless the system
// clock was set back.
// Errors: the error of the context; ErrNotShared, ErrLimit, ErrClosed.
func (p *Peer) WaitNewer(ctx context.Context, name string, after uint64) (*usmarray.Array, uint64, error) {
	const op = "WaitNewer"
	if name == "" || len(name) > maxName {
		return nil, 0, opError(op, ErrName, "the name has %d bytes, want 1 to %d", len(name), maxName)
	}
	a, err := p.ask(ctx, op, frameWait, func(b []byte) []byte {
		return appendText(binary.LittleEndian.AppendUint64(b, after), name)
	})
	return a.array, a.sequence, err
}

// cancelWaits cancels all pending calls of WaitNewer.
func (p *Peer) cancelWaits() {
	p.mu.Lock()
	var ids []uint64
	for id, c := range p.calls {
		if c.expects == frameNewer {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.cancel(id)
	}
}

// cancel asks the other process to refuse a call of WaitNewer that is still pending there.
func (p *Peer) cancel(id uint64) {
	p.mu.Lock()
	_ = p.postFrame(frameCancel, id, nil) // if it fails, the connection has ended, and the call with it
}

// Open opens a handle of the other process. A handle can be opened once; see [Server.Open].
func (p *Peer) Open(ctx context.Context, h Handle) (*usmarray.Array, error) {
	const op = "Open"
	if h.encoded == "" {
		return nil, opError(op, ErrHandle, "the zero Handle names no array")
	}
	if ctx.Err() == nil {
		if a, ok, err := p.openOffered(&h); ok {
			return a, err
		}
	}
	a, err := p.ask(ctx, op, frameOpen, func(b []byte) []byte { return append(b, h.encoded...) })
	return a.array, err
}

// Names returns all names that the other process publishes, in ascending order. Errors: ErrLimit if
// there are more than Options.MaxNames, ErrProtocol if the answers are not in ascending order (such a
// list could be endless), ErrClosed.
func (p *Peer) Names(ctx context.Context) (names []string, err error) {
	const op = "Names"
	for last := ""; ; last = names[len(names)-1] {
		a, err := p.ask(ctx, op, frameNames, func(b []byte) []byte { return appendText(b, last) })
		if err != nil {
			return nil, err
		}
		if len(a.names) == 0 {
			return names, nil
		}
		if a.names[0] <= last { // readNames checks the order within the answer
			p.fail(opError("connection", ErrProtocol, "%v: the list of names after %q begins with %q", p.credentials, last, a.names[0]))
			return nil, withOp(op, p.Err())
		}
		if most := p.node.options.MaxNames; len(names)+len(a.names) > most {
			return nil, opError(op, ErrLimit, "%v publishes more than %d names; raise Options.MaxNames, or attach by name without listing", p.credentials, most)
		}
		names = append(names, a.names...)
	}
}

// ask sends a request and waits for the answer.
func (p *Peer) ask(ctx context.Context, op string, kind frameKind, payload func([]byte) []byte) (answer, error) {
	return p.await(ctx, op, kind.answer(), func(c *call, id uint64) error {
		return p.postFrame(kind, id, payload)
	})
}

// await makes a call. send sends the request; it runs with p.mu held and unlocks it. A frame of the
// expected kind answers the request.
func (p *Peer) await(ctx context.Context, op string, expects frameKind, send func(c *call, id uint64) error) (answer, error) {
	select {
	case p.credits <- struct{}{}:
	default:
		err := poll.Resume(ctx, func(ctx context.Context) error {
			select {
			case p.credits <- struct{}{}:
				return nil
			case <-ctx.Done():
				return operr.Ended(ctx)
			case <-p.done:
				return p.Err()
			}
		})
		if err != nil {
			return answer{}, withOp(op, err)
		}
	}
	c := calls.Get().(*call) //nolint:forcetypeassert // the pool makes nothing else
	p.mu.Lock()
	if err := p.over(); err != nil {
		p.mu.Unlock()
		<-p.credits
		calls.Put(c)
		return answer{}, withOp(op, err)
	}
	p.lastCall++
	id := p.lastCall
	c.expects = expects
	p.calls[id] = c
	if err := send(c, id); err != nil {
		p.mu.Lock()
		if p.calls[id] == c {
			delete(p.calls, id)
			<-p.credits
			p.mu.Unlock()
			return answer{}, withOp(op, err)
		}
		p.mu.Unlock()
		// The call was answered: by fail, or before the connection ended. An answer before the end
		// may contain an array, which the caller then owns.
	} else if poll.Of(ctx) == nil {
		p.readFor(ctx, func() bool { return len(c.answer) > 0 })
	} else {
		_ = poll.Resume(ctx, func(ctx context.Context) error { return p.awaitAnswer(ctx, c) }) // the select reports its error
	}
	select {
	case a := <-c.answer:
		calls.Put(c)
		if a.err != nil {
			a.err = withOp(op, a.err)
		}
		return a, a.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	if p.calls[id] == c {
		c.abandoned = true // answerTo disposes of the answer
		p.mu.Unlock()
		if expects == frameNewer { // without cancel, the other process might never answer
			p.cancel(id)
		}
		return answer{}, withOp(op, operr.Ended(ctx))
	}
	p.mu.Unlock()
	a := <-c.answer
	a.dispose()
	return answer{}, withOp(op, operr.Ended(ctx))
}

// awaitAnswer waits for the answer to a call, which the caller of await takes.
func (p *Peer) awaitAnswer(ctx context.Context, c *call) error {
	p.readFor(ctx, func() bool { return len(c.answer) > 0 })
	select {
	case a := <-c.answer:
		c.answer <- a
		return nil
	case <-ctx.Done():
		return operr.Ended(ctx)
	}
}

// calls recycles calls and their channels. A channel carries one answer at a time.
var calls = sync.Pool{New: func() any { return &call{answer: make(chan answer, 1)} }}

// over returns the reason why no call can begin, or nil. p.mu is held.
func (p *Peer) over() error {
	if p.err != nil {
		return p.err
	}
	if p.closing {
		return opError("call", ErrClosed, "the connection was closed by this process")
	}
	return nil
}

// Close ends the use of the connection by this process. New calls fail, and pending calls of WaitNewer
// end. Handles that only this peer may open become stale. Opened arrays stay valid: the connection stays
// open to report their release, until the last one is released on either side. Close does not wait and may
// be called again.
func (p *Peer) Close() error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.node.leases.endUnopened(p)
	p.cancelWaits()
	p.endIfIdle()
	return nil
}

// endIfIdle ends a closing connection if it has no pending calls and no leases on either side.
func (p *Peer) endIfIdle() {
	p.mu.Lock()
	idle := p.closing && p.err == nil && p.opened == 0 && len(p.calls) == 0
	p.mu.Unlock()
	if idle && p.node.leases.heldBy(p) == 0 {
		p.fail(opError("connection", ErrClosed, "it was closed by this process"))
	}
}

// fail ends the connection with an error. It ends all leases that the peer holds, answers all pending
// calls with the error, and unmaps the peer's segments that have no open arrays. If the peer process is
// exiting, fail keeps watching it until it has ended or its last array is released: once the process has
// ended, its arrays can be passed on.
func (p *Peer) fail(err error) {
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.err = err
	unanswered := p.calls
	p.calls = map[uint64]*call{}
	p.queue.clear()
	p.sent = nil
	p.ended, p.marked = nil, nil
	if p.reportTimer != nil {
		p.reportTimer.Stop()
	}
	unmap := p.takeIdle()
	page := p.dropClaims()
	watchOn := p.exiting && p.opened > 0
	close(p.done)
	p.mu.Unlock()
	p.end()

	p.closeLink()
	if !watchOn {
		p.watch.Close()
	}
	for _, c := range unanswered {
		<-p.credits
		if !c.abandoned {
			c.answer <- answer{err: err}
		}
	}
	p.node.leases.endOf(p)
	p.node.leave(p)
	for _, h := range unmap {
		h.unmap()
	}
	if page != nil {
		_ = page.Close() // cannot fail
	}
}

// expected returns an error if no pending call has the number of an answer, or if the call expects
// another kind of answer. It is called before the answer is decoded, so that no array is opened without
// a caller that takes it. Only the reading goroutine calls expected.
func (p *Peer) expected(f frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[f.call]
	switch {
	case p.err != nil:
		return p.err
	case c == nil:
		return fmt.Errorf("a frame of kind %d answers call %d, which is not pending", f.kind, f.call)
	case f.kind != c.expects && f.kind != frameRefused:
		return fmt.Errorf("a frame of kind %d answers call %d, want kind %d", f.kind, f.call, c.expects)
	}
	return nil
}

// answerTo delivers an answer to its call.
func (p *Peer) answerTo(id uint64, a answer) {
	p.mu.Lock()
	c := p.calls[id]
	if c == nil {
		p.mu.Unlock()
		a.dispose()
		return
	}
	delete(p.calls, id)
	<-p.credits
	abandoned, closing := c.abandoned, p.closing
	p.mu.Unlock()
	if abandoned {
		a.dispose()
	} else {
		p.delivered = true
		c.answer <- a
	}
	if closing {
		p.endIfIdle()
	}
}

// guard ends the connection when the other process ends. If the connection has ended before, because the
// process was exiting, guard replaces the error by ErrDied.
func (p *Peer) guard() {
	go func() {
		defer p.watch.Close()
		if p.watch.Wait() != nil {
			return
		}
		died := opError("connection", ErrDied, "%v", p.credentials)
		p.fail(died)
		p.mu.Lock()
		if p.exiting {
			p.err = died
		}
		p.mu.Unlock()
	}()
}

// addStats adds the counts of this connection to s.
func (p *Peer) addStats(s *Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Peers++
	s.Opened += p.opened
	s.Known += len(p.sent)
	for _, h := range p.held {
		for _, m := range h.maps {
			if m != nil {
				s.Mapped++
				s.MappedBytes += h.facts.size
			}
		}
	}
}

// Stats returns the counts of this connection.
func (p *Peer) Stats() (s Stats) {
	p.addStats(&s)
	s.Leases = p.node.leases.heldBy(p)
	return s
}

// String describes the other process, as [Credentials.String] does.
func (p *Peer) String() string { return p.credentials.String() }
