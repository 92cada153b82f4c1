package share

import (
	"context"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/internal/userid"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// node is the state that all connections of a server share. A connection made with Dial has a node of its
// own. The node holds the leases of this process's memory, and a timer that ends expired handles and
// unmaps idle segments.
type node struct {
	options Options
	maker   string // address of the server, as handles contain it; "" without a server
	leases  leaseTable

	mu        sync.Mutex
	peers     map[*Peer]struct{}
	places    places
	published map[string]*published
	sequence  uint64                 // number of the last published version
	newer     map[string][]newerWait // pending calls of WaitNewer by name
	waits     map[*Peer]int          // number of pending calls in newer by peer
	closed    bool
	clock     *time.Timer // runs while there are peers or unopened handles
	ticks     bool        // clock runs
}

func newNode(o Options) *node {
	return &node{options: o.filled(), peers: map[*Peer]struct{}{}}
}

// tick returns the interval of the clock: a quarter of the shortest time in the options, between 5 and
// 250 ms.
func (n *node) tick() time.Duration {
	return max(min(n.options.Unopened, n.options.Idle, time.Second)/4, 5*time.Millisecond)
}

// startClock starts the clock if it does not run.
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

// onTick is the timer callback. It decides under n.mu whether the clock runs on, so that it sees every
// connection or handle for which startClock found the clock running.
func (n *node) onTick() {
	now := time.Now()
	n.leases.expire(now)
	for _, p := range n.allPeers() {
		p.sweep(now)
		p.endIfClosing() // the last lease may have ended on the board, without a message
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ticks = len(n.peers) > 0 || n.leases.waiting() > 0; n.ticks {
		n.clock.Reset(n.tick())
	}
}

// allPeers returns the connected peers.
func (n *node) allPeers() []*Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*Peer, 0, len(n.peers))
	for p := range n.peers {
		all = append(all, p)
	}
	return all
}

// join adds a connection after the greeting of its process.
func (n *node) join(p *Peer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return opError("connect", ErrClosed, "the server was closed")
	}
	if len(n.peers) >= n.options.MaxPeers {
		return opError("connect", ErrLimit, "%d processes are connected, the maximum; raise Options.MaxPeers", len(n.peers))
	}
	n.peers[p] = struct{}{}
	return nil
}

// leave removes a connection that has ended.
func (n *node) leave(p *Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.peers, p)
	n.dropWaits(func(w newerWait) bool { return w.peer == p })
}

// places counts the connections of a server. A connection counts from the admission of its process, before
// the greeting, until the kernel has released its socket.
type places struct {
	all       int
	byProcess map[int]int // by process ID; 0 stands for all processes of other PID namespaces
	byUser    map[uint32]int
}

// takePlace counts a connection, or fails if its process or user has too many, so that other processes can
// still connect. The limit for one user does not apply to the server's own user, because processes of
// that user can end the server anyway.
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
		return opError("connect", ErrLimit, "the server has %d connections, including those that begin or end; twice Options.MaxPeers", pl.all)
	}
	if pl.byProcess == nil {
		pl.byProcess, pl.byUser = map[int]int{}, map[uint32]int{}
	}
	pl.all++
	pl.byProcess[c.PID]++
	pl.byUser[c.UID]++
	return nil
}

// leavePlace undoes takePlace.
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

// newLease makes a lease of an array's buffer. The caller adds it to the table.
// newLease waits for work that is pending on the array, unless o.NoWait leaves that to the opening.
func newLease(ctx context.Context, op string, a *usmarray.Array, o ExportOptions) (*lease, error) {
	if a == nil || !a.Valid() {
		return nil, opError(op, ErrNotShared, "the array is nil or was released")
	}
	l := &lease{holder: o.To, pid: o.PID, buffer: a.Buffer()}
	if err := retain(op, l.buffer); err != nil {
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

// synchronize waits for work that is pending on an array. If the memory was never exported to or imported
// from another library, all work on it is recorded in the buffer. Then no barrier is submitted to the
// queue.
func synchronize(ctx context.Context, a *usmarray.Array) error {
	if isSeen(a.Buffer()) {
		return a.Synchronize(ctx)
	}
	if err := a.Buffer().WaitContext(ctx); err != nil {
		return err
	}
	return operr.Ended(ctx)
}

// isSeen reports whether other libraries have access to the memory, or compute on it, and may have submitted work
// on it, or whether a failure of work on it has not been returned yet.
func isSeen(b memmgr.Buffer) bool {
	return cells.Of(b).Flags()&(owner.Seen|owner.Failed|owner.UsedBits) != 0
}

// describe sets the memory and the description of the lease.
func (l *lease) describe(op string, a *usmarray.Array) error {
	size := l.buffer.Size()
	s, offset, ok := segment.Find(l.buffer.Address(), size)
	if !ok {
		if other := openedFrom(l.buffer); other != nil {
			if other.orphaned() {
				return l.describeOrphan(op, a, other)
			}
			return opError(op, ErrNotShared, "the array belongs to %v, and its bytes lie in no segment of this process; use Server.Export "+
				"to get a handle from that process, or copy the array into memory of package segment", other.peer)
		}
		return opError(op, ErrNotShared, "the array's %d bytes at %#x lie in no segment of this process; copy the array into memory of package segment",
			size, l.buffer.Address())
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
