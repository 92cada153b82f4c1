// Package fair gives a number of turns to the requests of many tenants: whoever waits is
// served in order among the requests of its tenant, and tenants are served in rotation, so
// that a thousand requests of one keep a request of another waiting for one of them.
//
// A tenant that is alone may have all turns. While others are about, which are those with requests
// and the last one that had some a moment ago, a tenant has a few, and the rest is there for whoever
// comes; and requests take their turns early (Early), before they are read, so that what a tenant
// has the processors do at a time is bounded by its turns. A turn that was taken early lapses where
// the request is not ready for it soon: a client that sends slowly keeps nobody's turn.
//
// How many requests may be there is bounded, for each tenant and for all together; one more
// is refused at once. Everything takes the same time however many there are.
package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reasons of a refusal, for errors.Is.
var (
	// ErrFull: as many requests are there as may be.
	ErrFull = errors.New("the queue is full")
	// ErrTenantFull: as many of this tenant.
	ErrTenantFull = errors.New("the queue of this tenant is full")
)

// Config says how much there may be.
type Config struct {
	Turns     int // requests that are served at a time; at least 1
	Requests  int // requests that are there, with a turn or without; at least 1
	PerTenant int // of one tenant; at least 1

	// Shared is how many turns one tenant has while others are about; Turns where it is 0.
	Shared int
	// About is how long a tenant counts as about after its last request.
	About time.Duration
	// Lapse is after how long a turn that was taken early goes to one who waits. 0: never.
	Lapse time.Duration
}

// Queue gives turns. Its methods may be called from any goroutine.
type Queue struct {
	config Config

	mu      sync.Mutex
	tenants map[string]*tenant // those with requests
	there   int
	turns   int     // taken
	next    *tenant // the ring of those with requests that wait; next is served next
	waiting int
	last    [2]visit // of the two tenants that came last

	// Turns that were taken early and may lapse, oldest first, and what looks after them while
	// somebody waits.
	early   list
	clock   *time.Timer
	ticking bool
}

// visit is that a tenant was there.
type visit struct {
	name string
	at   time.Time
}

// tenant is the requests of one.
type tenant struct {
	name  string
	there int
	turns int  // taken
	line  list // that wait, in order
	// In the ring of the queue while somebody is in line.
	before, after *tenant
}

// list is tickets one behind the other; a ticket is in one at most.
type list struct{ first, last *Ticket }

// push puts a ticket at the end.
func (l *list) push(k *Ticket) {
	if k.earlier = l.last; k.earlier != nil {
		k.earlier.later = k
	} else {
		l.first = k
	}
	l.last = k
}

// remove takes a ticket out.
func (l *list) remove(k *Ticket) {
	if k.earlier != nil {
		k.earlier.later = k.later
	} else {
		l.first = k.later
	}
	if k.later != nil {
		k.later.earlier = k.earlier
	} else {
		l.last = k.earlier
	}
	k.earlier, k.later = nil, nil
}

// New makes a queue. Errors: a number below 1.
func New(c Config) (*Queue, error) {
	if c.Turns < 1 || c.Requests < 1 || c.PerTenant < 1 {
		return nil, fmt.Errorf("fair: %d turns, %d requests, %d of a tenant: each must be at least 1", c.Turns, c.Requests, c.PerTenant)
	}
	if c.Shared < 0 || c.About < 0 || c.Lapse < 0 {
		return nil, errors.New("fair: a number in Config is negative")
	}
	if c.Shared == 0 || c.Shared > c.Turns {
		c.Shared = c.Turns
	}
	return &Queue{config: c, tenants: map[string]*tenant{}}, nil
}

// state of a ticket; guarded by the queue.
type state uint8

const (
	idle    state = iota // there
	waiting              // in line
	taken                // with a turn
	gone
)

// Ticket is one request that is there. It is used by one goroutine at a time.
type Ticket struct {
	queue  *Queue
	tenant *tenant
	state  state
	turn   chan struct{} // closed with the turn
	// The line of the tenant, while it waits; those who have their turns early, while it is among them.
	earlier, later *Ticket
	early          bool // the turn may lapse
	since          time.Time
}

// Enter counts a request in. Leave counts it out. Errors: ErrFull and ErrTenantFull.
func (q *Queue) Enter(name string) (*Ticket, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.there >= q.config.Requests {
		return nil, ErrFull
	}
	t := q.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		q.tenants[name] = t
	} else if t.there >= q.config.PerTenant {
		return nil, ErrTenantFull
	}
	t.there++
	q.there++
	if q.config.About > 0 {
		q.visited(name)
	}
	return &Ticket{queue: q, tenant: t}, nil
}

// visited notes that a tenant is there.
func (q *Queue) visited(name string) {
	if q.last[0].name != name {
		q.last[1] = q.last[0]
	}
	q.last[0] = visit{name, time.Now()}
}

// crowded tells whether others than a tenant are about.
func (q *Queue) crowded(t *tenant) bool {
	if len(q.tenants) > 1 {
		return true
	}
	other := &q.last[0]
	if other.name == t.name {
		other = &q.last[1]
	}
	return !other.at.IsZero() && time.Since(other.at) < q.config.About
}

// may tells whether a tenant may have one turn more.
func (q *Queue) may(t *tenant) bool {
	return q.turns < q.config.Turns && (t.turns < q.config.Shared || !q.crowded(t))
}

// Early is Wait for those who are not ready yet, and does nothing while no other tenant is about:
// whoever is crowded begins nothing without a turn. The turn lapses after a while, unless Wait is
// called; then Wait waits for another one.
func (k *Ticket) Early(ctx context.Context) error {
	q := k.queue
	q.mu.Lock()
	crowded := k.state == idle && q.crowded(k.tenant)
	q.mu.Unlock()
	if !crowded {
		return nil
	}
	return k.wait(ctx, q.config.Lapse > 0)
}

// Wait waits for a turn, which Leave gives back; where the ticket has one it returns at once.
// When the context ends first it returns the context's error, and the ticket may wait again.
func (k *Ticket) Wait(ctx context.Context) error { return k.wait(ctx, false) }

func (k *Ticket) wait(ctx context.Context, early bool) error {
	q := k.queue
	q.mu.Lock()
	switch {
	case k.state == taken:
		if k.early && !early {
			q.settle(k)
		}
		q.mu.Unlock()
		return nil
	case k.state != idle:
		q.mu.Unlock()
		return errors.New("fair: Wait on a ticket that waits or has left")
	case ctx.Err() != nil:
		q.mu.Unlock()
		return ctx.Err()
	}
	k.early = early
	if k.tenant.line.first == nil && q.may(k.tenant) { // whoever else waits has the turns that it may have
		q.take(k)
		q.mu.Unlock()
		return nil
	}
	k.state = waiting
	k.turn = make(chan struct{})
	q.push(k)
	q.tick()
	q.mu.Unlock()

	select {
	case <-k.turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch k.state {
	case taken: // both at once: the turn goes on to another
		q.back(k)
	case waiting:
		q.remove(k)
	}
	k.state = idle
	return ctx.Err()
}

// Leave gives the turn back, if there is one, and counts the request out. Calling it again
// does nothing. It must not be called while Wait runs.
func (k *Ticket) Leave() {
	q := k.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	switch k.state {
	case gone:
		return
	case taken:
		q.back(k)
	case waiting:
		q.remove(k)
	}
	k.state = gone
	q.there--
	if k.tenant.there--; k.tenant.there == 0 {
		delete(q.tenants, k.tenant.name)
		if q.config.About > 0 {
			q.visited(k.tenant.name)
		}
	}
}

// Yield gives the turn back and stays there: what is left to do needs none.
func (k *Ticket) Yield() {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	if k.state == taken {
		k.state = idle
		k.queue.back(k)
	}
}

// take gives a ticket a turn.
func (q *Queue) take(k *Ticket) {
	q.turns++
	k.tenant.turns++
	k.state = taken
	if !k.early {
		return
	}
	k.since = time.Now()
	q.early.push(k)
}

// settle has a turn that was taken early stay.
func (q *Queue) settle(k *Ticket) {
	q.early.remove(k)
	k.early = false
}

// back takes a turn back and gives it on.
func (q *Queue) back(k *Ticket) {
	if k.early {
		q.settle(k)
	}
	q.turns--
	k.tenant.turns--
	q.pass()
}

// pass gives the turns that there are to those who wait: each tenant in rotation that may have one
// more.
func (q *Queue) pass() {
	for t := q.next; t != nil && q.turns < q.config.Turns; {
		if !q.may(t) {
			if t = t.after; t == q.next {
				break
			}
			continue
		}
		k := t.line.first
		q.next = t
		q.remove(k)
		if t.line.first != nil {
			q.next = t.after
		}
		q.take(k)
		close(k.turn)
		t = q.next
	}
	q.tick()
}

// tick has turns that were taken early looked after, while somebody waits.
func (q *Queue) tick() {
	if q.ticking || q.waiting == 0 || q.early.first == nil {
		return
	}
	q.ticking = true
	d := time.Until(q.early.first.since.Add(q.config.Lapse))
	if q.clock == nil {
		q.clock = time.AfterFunc(d, q.lapse)
		return
	}
	q.clock.Reset(d)
}

// lapse takes turns back that were taken too early.
func (q *Queue) lapse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ticking = false
	for k := q.early.first; k != nil && q.waiting > 0 && time.Since(k.since) >= q.config.Lapse; k = q.early.first {
		k.state = idle
		q.back(k)
	}
	q.tick()
}

// push puts a ticket at the end of its tenant's line, and a tenant that had none at the end
// of the rotation.
func (q *Queue) push(k *Ticket) {
	t := k.tenant
	q.waiting++
	t.line.push(k)
	if t.line.first != k {
		return
	}
	if q.next == nil {
		t.before, t.after = t, t
		q.next = t
		return
	}
	t.after, t.before = q.next, q.next.before
	t.before.after, t.after.before = t, t
}

// remove takes a ticket out of its line, and a tenant whose last it was out of the rotation.
func (q *Queue) remove(k *Ticket) {
	t := k.tenant
	q.waiting--
	t.line.remove(k)
	if t.line.first != nil {
		return
	}
	t.before.after, t.after.before = t.after, t.before
	switch {
	case t.after == t:
		q.next = nil
	case q.next == t:
		q.next = t.after
	}
	t.before, t.after = nil, nil
}

// Stats are the counts of a queue.
type Stats struct {
	Turns, MaxTurns       int // taken
	Waiting               int
	Requests, MaxRequests int // that are there
	Tenants               int // with requests that are there
}

// Stats counts.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{q.turns, q.config.Turns, q.waiting, q.there, q.config.Requests, len(q.tenants)}
}
