// Package fair gives a number of turns to the requests of many tenants: whoever waits is
// served in order among the requests of its tenant, and tenants are served in rotation, so
// that a thousand requests of one keep a request of another waiting for one of them.
//
// How many requests may be there is bounded, for each tenant and for all together; one more
// is refused at once. Everything takes the same time however many there are.
package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Reasons of a refusal, for errors.Is.
var (
	// ErrFull: as many requests are there as may be.
	ErrFull = errors.New("the queue is full")
	// ErrTenantFull: as many of this tenant.
	ErrTenantFull = errors.New("the queue of this tenant is full")
)

// Config says how much there may be; each is at least 1.
type Config struct {
	Turns     int // requests that are served at a time
	Requests  int // requests that are there, with a turn or without
	PerTenant int // of one tenant
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
}

// tenant is the requests of one.
type tenant struct {
	name        string
	there       int
	first, last *Ticket // that wait, in order
	// In the ring of the queue while first is set.
	before, after *tenant
}

// New makes a queue. Errors: a number below 1.
func New(c Config) (*Queue, error) {
	if c.Turns < 1 || c.Requests < 1 || c.PerTenant < 1 {
		return nil, fmt.Errorf("fair: %d turns, %d requests, %d of a tenant: each must be at least 1", c.Turns, c.Requests, c.PerTenant)
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
	// The line of the tenant, while it waits.
	earlier, later *Ticket
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
	return &Ticket{queue: q, tenant: t}, nil
}

// Wait waits for a turn, which Leave gives back; where the ticket has one it returns at once.
// When the context ends first it returns the context's error, and the ticket may wait again.
func (k *Ticket) Wait(ctx context.Context) error {
	q := k.queue
	q.mu.Lock()
	switch {
	case k.state == taken:
		q.mu.Unlock()
		return nil
	case k.state != idle:
		q.mu.Unlock()
		return errors.New("fair: Wait on a ticket that waits or has left")
	case ctx.Err() != nil:
		q.mu.Unlock()
		return ctx.Err()
	case q.turns < q.config.Turns: // then nobody waits
		q.turns++
		k.state = taken
		q.mu.Unlock()
		return nil
	}
	k.state = waiting
	k.turn = make(chan struct{})
	q.push(k)
	q.mu.Unlock()

	select {
	case <-k.turn:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if k.state == taken { // both at once: the turn goes on to another
		q.pass()
	} else {
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
		q.pass()
	case waiting:
		q.remove(k)
	}
	k.state = gone
	q.there--
	if k.tenant.there--; k.tenant.there == 0 {
		delete(q.tenants, k.tenant.name)
	}
}

// Yield gives the turn back and stays there: what is left to do needs none.
func (k *Ticket) Yield() {
	k.queue.mu.Lock()
	defer k.queue.mu.Unlock()
	if k.state == taken {
		k.queue.pass()
		k.state = idle
	}
}

// pass gives one turn to the next who waits, or back.
func (q *Queue) pass() {
	t := q.next
	if t == nil {
		q.turns--
		return
	}
	k := t.first
	q.remove(k)
	if t.first != nil {
		q.next = t.after
	}
	k.state = taken
	close(k.turn)
}

// push puts a ticket at the end of its tenant's line, and a tenant that had none at the end
// of the rotation.
func (q *Queue) push(k *Ticket) {
	t := k.tenant
	q.waiting++
	if t.last != nil {
		t.last.later, k.earlier = k, t.last
		t.last = k
		return
	}
	t.first, t.last = k, k
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
	if k.earlier != nil {
		k.earlier.later = k.later
	} else {
		t.first = k.later
	}
	if k.later != nil {
		k.later.earlier = k.earlier
	} else {
		t.last = k.earlier
	}
	k.earlier, k.later = nil, nil
	if t.first != nil {
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
