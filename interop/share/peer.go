package share

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/pidfd"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Peer is a connection with one other process. Either side can open the other's arrays and
// hand over its own. All methods may be called from any goroutine; what waits has a
// context, and ends when the connection does.
type Peer struct {
	node        *node
	link        *link
	watch       *pidfd.Process
	credentials Credentials
	address     string // of the socket that was dialled, as who listens there named it; "" for who dialled here
	closeLink   func() // of link, once
	receives    bool   // somebody here is told of the connection, and may receive

	// Under the mutex of the node's leases.
	leases leaseList // that the other process has of this one's memory
	closed bool      // no lease begins for it any more
	board  *board    // where handles are offered to it; nil for none

	credits chan struct{} // one for each call under way

	reading chan struct{} // taken by who reads from the link
	resume  chan struct{} // has the connection's own goroutine read again
	came    atomic.Uint64 // how often another read in its place
	buffer  []byte        // of who reads
	brought bool          // of who reads: somebody who waits was given something

	boardShown bool // of who reads: it was given a board, or will have none

	life context.Context
	end  context.CancelFunc // of life

	mu       sync.Mutex
	err      error // why it is over
	exiting  bool  // the other process was ending when its socket was found closed, before err was set
	done     chan struct{}
	closing  bool // no call begins any more; it ends with the last lease, of either side
	lastCall uint64
	calls    map[uint64]*call
	waits    int // answers that wait for work on an array
	queue    sendQueue
	sent     map[segment.ID]known // segments of this process that the other has descriptors of
	held     map[segment.ID]*held // segments of the other process
	declined map[segment.ID]error // of which one more would have been too many, or unasked for: why
	opened   int                  // arrays in them
	claims   *claims              // the other process's board; nil for none
	inbox    []gift
	waiting  chan struct{} // closed when a gift comes; nil while nobody waits
	waiters  int           // on it
	ended    []uint64      // leases of the other process that are over here and not yet told of
	marked   []*opened     // arrays released on the board; the maker may not have found the mark
	reported uint64        // serials that messages carried
	telling  bool          // and the timer that tells them runs
	untold   int           // times that it ran since one was noted
	teller   *time.Timer
}

// maxCalls is the maximum number of pending calls of one side.
const maxCalls = 128

func newPeer(n *node, l *link, w *pidfd.Process, c Credentials, receives bool, closeLink func()) *Peer {
	p := &Peer{
		node: n, link: l, watch: w, credentials: c, receives: receives, closeLink: closeLink, credits: make(chan struct{}, maxCalls),
		reading: make(chan struct{}, 1), resume: make(chan struct{}, 1), buffer: make([]byte, maxDatagram),
		done: make(chan struct{}), calls: map[uint64]*call{},
		sent: map[segment.ID]known{}, held: map[segment.ID]*held{}, declined: map[segment.ID]error{},
	}
	p.reading <- struct{}{}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// call is a request that was sent and not yet answered.
type call struct {
	answer    chan answer
	expects   frameKind // of the answer; a refusal answers any call
	given     uint64    // lease that a refusal ends
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

// Dial connects to a server, by the address that [Server.Address] returns or that [Listen] was given.
// Errors: ErrAddress if no process listens there, ErrRefused if either side does not admit the other.
func Dial(ctx context.Context, address string, o Options) (*Peer, error) {
	return connect(ctx, "Dial", address, newNode(o), true)
}

// Credentials returns the credentials of the other process.
func (p *Peer) Credentials() Credentials { return p.credentials }

// Done returns a channel that is closed when the connection has ended. Opened arrays stay valid.
func (p *Peer) Done() <-chan struct{} { return p.done }

// Err returns why the connection is over: ErrDied if the other process ended, ErrClosed,
// ErrProtocol; nil before. If the exit of the other process takes longer than a second, Err returns
// ErrClosed until the process has ended, and ErrDied after that if an array of it is still open.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Attach opens the array that the other process publishes under a name, and returns it with
// an owner of its own: the memory is the other process's until the last reference is
// released. Errors: ErrName, ErrNotShared when this process cannot map it, ErrLimit,
// ErrClosed.
func (p *Peer) Attach(ctx context.Context, name string) (*usmarray.Array, error) {
	const op = "Attach"
	if len(name) > maxName {
		return nil, opError(op, ErrName, "a name of %d bytes, and the longest has %d", len(name), maxName)
	}
	a, err := p.ask(ctx, op, frameAttach, func(b []byte) []byte { return appendText(b, name) })
	return a.array, err
}

// WaitNewer waits until the other process has published an array under a name with a sequence number
// above after ([Server.Publish]), opens the newest one as [Peer.Attach] does, and returns it with its
// number. With after 0, any published array is newer. A name that is not published yet, or was
// withdrawn, is waited for. Versions that were replaced before the call or during it are skipped. A
// server that starts later at the same address has larger numbers, unless the clock was set back.
// Errors: the error of the context; ErrNotShared, ErrLimit, ErrClosed.
func (p *Peer) WaitNewer(ctx context.Context, name string, after uint64) (*usmarray.Array, uint64, error) {
	const op = "WaitNewer"
	if name == "" || len(name) > maxName {
		return nil, 0, opError(op, ErrName, "a name of %d bytes; it has 1 to %d", len(name), maxName)
	}
	a, err := p.ask(ctx, op, frameWait, func(b []byte) []byte {
		return appendText(binary.LittleEndian.AppendUint64(b, after), name)
	})
	return a.array, a.sequence, err
}

// cancelWaits ends the calls of WaitNewer.
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

// cancel makes the other process refuse a call of WaitNewer that still waits there.
func (p *Peer) cancel(id uint64) {
	p.mu.Lock()
	d := p.newDatagram()
	d.b = appendFrame(d.b, frameCancel, id, nil)
	_ = p.post(d) // if it fails, the connection has ended, and the call with it
}

// Open opens a handle of the other process, once; see [Server.Open].
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

// Names lists what the other process publishes, in order; all of it, or it fails. It takes
// Options.MaxNames of them at most, of 255 bytes each. Errors: ErrLimit when there are more,
// ErrProtocol when they do not rise, so that there might be no end, ErrClosed.
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
		if a.names[0] <= last { // within the answer they rise
			p.fail(opError("connection", ErrProtocol, "%v: names behind %q were asked for, and %q came", p.credentials, last, a.names[0]))
			return nil, named(op, p.Err())
		}
		if most := p.node.options.MaxNames; len(names)+len(a.names) > most {
			return nil, opError(op, ErrLimit, "%v publishes more than %d names, Options.MaxNames of this process; attach by name all the same", p.credentials, most)
		}
		names = append(names, a.names...)
	}
}

// ask sends a request and waits for the answer.
func (p *Peer) ask(ctx context.Context, op string, kind frameKind, payload func([]byte) []byte) (answer, error) {
	return p.await(ctx, op, kind.answer(), func(c *call, id uint64) error {
		d := p.newDatagram()
		d.b = appendFrame(d.b, kind, id, payload)
		return p.post(d)
	})
}

// await makes a call. send sends the request; it runs with p.mu held and unlocks it. A frame of the
// expected kind answers the request.
func (p *Peer) await(ctx context.Context, op string, expects frameKind, send func(c *call, id uint64) error) (answer, error) {
	select {
	case p.credits <- struct{}{}:
	default:
		select {
		case p.credits <- struct{}{}:
		case <-ctx.Done():
			return answer{}, named(op, ctx.Err())
		case <-p.done:
			return answer{}, named(op, p.Err())
		}
	}
	c := calls.Get().(*call) //nolint:forcetypeassert // the pool makes nothing else
	p.mu.Lock()
	if err := p.over(); err != nil {
		p.mu.Unlock()
		<-p.credits
		calls.Put(c)
		return answer{}, named(op, err)
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
			return answer{}, named(op, err)
		}
		p.mu.Unlock()
		// It has its answer: that of fail, or one that came before the connection ended, with
		// an array that is the caller's.
	} else {
		p.readFor(ctx, func() bool { return len(c.answer) > 0 })
	}
	select {
	case a := <-c.answer:
		c.given = 0
		calls.Put(c)
		if a.err != nil {
			a.err = named(op, a.err)
		}
		return a, a.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	if p.calls[id] == c {
		c.abandoned = true // the answer ends it
		p.mu.Unlock()
		if expects == frameNewer { // it might never be answered otherwise
			p.cancel(id)
		}
		return answer{}, named(op, ctx.Err())
	}
	p.mu.Unlock()
	a := <-c.answer
	a.dispose()
	return answer{}, named(op, ctx.Err())
}

// calls keeps the channels of calls, of which each is used for one answer at a time.
var calls = sync.Pool{New: func() any { return &call{answer: make(chan answer, 1)} }}

// over returns the reason why no call can begin, or nil. p.mu is held.
func (p *Peer) over() error {
	if p.err != nil {
		return p.err
	}
	if p.closing {
		return opError("call", ErrClosed, "the connection was closed here")
	}
	return nil
}

// Close ends the use of the connection by this side: no call can begin, calls of WaitNewer end, arrays
// that were handed over and not received are released, and handles for this peer end. Opened arrays stay
// valid. The connection stays open for them, to report their release, until the last one is released on
// either side. Close does not wait and may be called again.
func (p *Peer) Close() error {
	p.mu.Lock()
	p.closing = true
	gifts := p.inbox
	p.inbox = nil
	p.wake()
	p.mu.Unlock()
	p.interrupt()
	for _, g := range gifts {
		g.array.Release()
	}
	p.node.leases.endUnopened(p)
	p.cancelWaits()
	p.endIfIdle()
	return nil
}

// endIfIdle ends a closing connection if it is not needed any more.
func (p *Peer) endIfIdle() {
	p.mu.Lock()
	idle := p.closing && p.err == nil && p.opened == 0 && len(p.calls) == 0
	p.mu.Unlock()
	if idle && p.node.leases.heldBy(p) == 0 {
		p.fail(opError("connection", ErrClosed, "it was closed here"))
	}
}

// fail ends the connection: all leases of the other side are over, calls are answered, and
// its memory is unmapped where no array is open. A process that is ending is watched until it has
// ended or its last array is released: then its arrays can be passed on.
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
	if p.teller != nil {
		p.teller.Stop()
	}
	unmap := p.takeIdle()
	page := p.blind()
	watchOn := p.exiting && p.opened > 0
	p.wake()
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

// expected tells what is wrong with an answer: no call of that number waits for one, or the
// call that does is of another kind. It is asked before the answer is looked into, so that
// nothing is opened that nobody would take. Only the goroutine that reads calls it.
func (p *Peer) expected(f frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[f.call]
	switch {
	case p.err != nil:
		return p.err
	case c == nil:
		return fmt.Errorf("a frame of kind %d answers call %d, which nobody made or which was answered", f.kind, f.call)
	case f.kind != c.expects && f.kind != frameRefused:
		return fmt.Errorf("a frame of kind %d answers call %d, which one of kind %d would", f.kind, f.call, c.expects)
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
	abandoned, given, closing := c.abandoned, c.given, p.closing
	p.mu.Unlock()
	if given != 0 && a.err != nil {
		p.node.leases.end(p, []uint64{given})
	}
	if abandoned {
		a.dispose()
	} else {
		p.brought = true
		c.answer <- a
	}
	if closing {
		p.endIfIdle()
	}
}

// guard ends the connection when the other process ends. If the connection is over because the
// process was ending, guard replaces the error by ErrDied.
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

// hasGifts reports whether arrays wait to be received.
func (p *Peer) hasGifts() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.inbox) > 0
}

// addStats adds the counts of a connection.
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

// String names the other process.
func (p *Peer) String() string { return p.credentials.String() }

// isOver reports whether an error is that of an ended connection.
func isOver(err error) bool { return errors.Is(err, ErrClosed) }
