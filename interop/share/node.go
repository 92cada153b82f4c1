package share

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/userid"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// node is what the connections of one server share, or what one dialled connection has
// for itself: the leases that were made here, and the clock that ends what is over.
type node struct {
	options Options
	maker   string // where a server listens, as handles carry it; "" for none
	leases  leaseTable

	mu        sync.Mutex
	peers     map[*Peer]struct{}
	places    places
	published map[string]*published
	sequence  uint64                 // of the last array that was published
	newer     map[string][]newerWait // by name
	waits     map[*Peer]int          // in newer
	closed    bool
	clock     *time.Timer // runs while there are peers or unopened handles
	ticks     bool
}

func newNode(o Options) *node {
	return &node{options: o.filled(), peers: map[*Peer]struct{}{}}
}

// tick is how often the clock looks: often enough for the options, and at most every 250 ms.
func (n *node) tick() time.Duration {
	return max(min(n.options.Unopened, n.options.Idle, time.Second)/4, 5*time.Millisecond)
}

// wind starts the clock if it stands.
func (n *node) startClock() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ticks {
		return
	}
	n.ticks = true
	if n.clock == nil {
		n.clock = time.AfterFunc(n.tick(), n.onTick)
	} else {
		n.clock.Reset(n.tick())
	}
}

// look ends what is over. Whether the clock goes on is found under mu: what wind did not
// start it for, because it ran, is seen here.
func (n *node) onTick() {
	now := time.Now()
	n.leases.expire(now)
	for _, p := range n.allPeers() {
		p.sweep(now)
		p.endIfClosing() // its last lease may have gone without a word of the other side
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ticks = len(n.peers) > 0 || n.leases.waiting() > 0; n.ticks {
		n.clock.Reset(n.tick())
	}
}

func (n *node) allPeers() []*Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*Peer, 0, len(n.peers))
	for p := range n.peers {
		all = append(all, p)
	}
	return all
}

// join adds a connection whose process has greeted.
func (n *node) join(p *Peer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return opError("connect", ErrClosed, "the server was closed")
	}
	if len(n.peers) >= n.options.MaxPeers {
		return opError("connect", ErrLimit, "%d processes are connected, Options.MaxPeers", len(n.peers))
	}
	n.peers[p] = struct{}{}
	return nil
}

func (n *node) leave(p *Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.peers, p)
	n.dropWaits(func(w newerWait) bool { return w.peer == p })
}

// places counts the connections of a server from the admission of their processes until the
// kernel has released their sockets: before the greeting and after the end too.
type places struct {
	all       int
	byProcess map[int]int // processes of other PID namespaces are one here, number 0
	byUser    map[uint32]int
}

// takePlace bounds the connections of one process, and of the processes of one user, so that they
// leave places to others. The server's own user is not bounded: it can end the server.
func (n *node) takePlace(c Credentials) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	pl, most := &n.places, n.options.MaxPeers
	switch {
	case pl.byProcess[c.PID] >= (most+3)/4:
		return opError("connect", ErrLimit, "%v has %d connections, a quarter of Options.MaxPeers", c, pl.byProcess[c.PID])
	case pl.byUser[c.UID] >= (most+1)/2 && userid.CheckOwn(c.UID) != nil:
		return opError("connect", ErrLimit, "the processes of user %d have %d connections, half of Options.MaxPeers", c.UID, pl.byUser[c.UID])
	case pl.all >= 2*most:
		return opError("connect", ErrLimit, "%d connections begin, are there, or end, twice Options.MaxPeers", pl.all)
	}
	if pl.byProcess == nil {
		pl.byProcess, pl.byUser = map[int]int{}, map[uint32]int{}
	}
	pl.all++
	pl.byProcess[c.PID]++
	pl.byUser[c.UID]++
	return nil
}

func (n *node) leavePlace(c Credentials) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pl := &n.places
	pl.all--
	if pl.byProcess[c.PID]--; pl.byProcess[c.PID] == 0 {
		delete(pl.byProcess, c.PID)
	}
	if pl.byUser[c.UID]--; pl.byUser[c.UID] == 0 {
		delete(pl.byUser, c.UID)
	}
}

func (n *node) stats() (s Stats) {
	s.Unopened, s.Leases = n.leases.counts()
	n.mu.Lock()
	for _, calls := range n.waits {
		s.Waiting += calls
	}
	n.mu.Unlock()
	for _, p := range n.allPeers() {
		p.addStats(&s)
	}
	return s
}

// errElsewhere is the reason of memory that no other process can map.
var errElsewhere = errors.New("lie in no segment of this process")

// leaseOf is newLease, of a copy where the array cannot be shared and Options.CopyInto says
// where to.
func (n *node) leaseOf(ctx context.Context, op string, a *usmarray.Array, o ExportOptions) (*lease, error) {
	l, err := newLease(ctx, op, a, o)
	if !errors.Is(err, errElsewhere) || n.options.CopyInto == nil {
		return l, err
	}
	c, err := n.copied(ctx, op, a)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return newLease(ctx, op, c, o)
}

// copied makes the copy: of the elements as they are when pending work is done.
func (n *node) copied(ctx context.Context, op string, a *usmarray.Array) (*usmarray.Array, error) {
	if err := a.Synchronize(ctx); err != nil {
		return nil, withOp(op, err)
	}
	c, err := a.Copy(n.options.CopyInto, usmarray.WithContext(ctx))
	if err != nil {
		return nil, &OpError{Op: op, Kind: ErrNotShared, Err: fmt.Errorf("copying it into Options.CopyInto: %w", err)}
	}
	return c, nil
}

// newLease makes a lease of an array's buffer, not yet in the table: it holds its
// references, and waits for what is pending unless that is left to the opening.
func newLease(ctx context.Context, op string, a *usmarray.Array, o ExportOptions) (*lease, error) {
	if a == nil || !a.Valid() {
		return nil, opError(op, ErrNotShared, "the array was released, or never made")
	}
	l := &lease{holder: o.To, pid: o.PID, buffer: a.Buffer()}
	if err := retainTwice(op, l.buffer); err != nil {
		return nil, err
	}
	if err := l.describe(op, a); err != nil {
		l.release()
		return nil, err
	}
	if o.NoWait {
		l.pending = a.Retain()
	} else if err := synchronize(ctx, a); err != nil {
		l.release()
		return nil, withOp(op, err)
	}
	return l, nil
}

// synchronize waits for work that is pending on an array. If no other library has had the memory, all
// work on it is recorded in the buffer, and the queue takes no barrier.
func synchronize(ctx context.Context, a *usmarray.Array) error {
	if isSeen(a.Buffer()) {
		return a.Synchronize(ctx)
	}
	if err := a.Buffer().WaitContext(ctx); err != nil {
		return err
	}
	return ctx.Err()
}

// isSeen reports whether other libraries may have devices work on the memory.
func isSeen(b memmgr.Buffer) bool { return b.Cell().Flags()&owner.Seen != 0 }

// describe finds the segment of the array's buffer.
func (l *lease) describe(op string, a *usmarray.Array) error {
	size := l.buffer.Size()
	s, offset, ok := segment.Find(l.buffer.Address(), size)
	if !ok {
		if other := openedFrom(l.buffer); other != nil {
			if other.orphaned() {
				return l.describeOrphan(op, a, other)
			}
			return opError(op, ErrNotShared, "the array is one of %v, and its bytes %w; Server.Export has that process make a handle of it, "+
				"or copy it, or set Options.CopyInto", other.peer, errElsewhere)
		}
		return opError(op, ErrNotShared, "the array's %d bytes at %#x %w; copy it into memory of package segment, or set Options.CopyInto",
			size, l.buffer.Address(), errElsewhere)
	}
	l.memory = memory{segment: s, base: l.buffer.Address() - uintptr(offset)}
	l.d = description{
		segment: factsOf(s), offset: offset, size: size, dtype: a.DataType(),
		readOnly: a.ReadOnly() || l.buffer.ReadOnly() || s.Audience() == segment.PeersRead,
		padded:   a.Padded(), layout: a.Layout(),
	}
	return nil
}

func factsOf(s segment.Segment) segmentFacts {
	f := segmentFacts{id: s.ID(), size: s.Size(), audience: s.Audience()}
	if place := s.Place(); !place.IsHost() {
		f.kind = place.Kind()
	}
	return f
}
