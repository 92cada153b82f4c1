// Package fair bounds the requests of each client: how many exist, and how many run at a time.
//
// Each client has a semaphore. While a client is alone, Config.Calls of its requests run at a time.
// While other clients are active, only Config.Shared of them do, so a client that sends many requests
// leaves the processors to others. The requests of one client get places in order.
//
// The number of requests is bounded, for each client and for all together. A request beyond the
// bounds is refused immediately.
package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Errors of Enter.
var (
	// ErrFull is returned if all clients together have Config.Requests requests.
	ErrFull = errors.New("too many requests")
	// ErrTenantFull is returned if the client has Config.PerTenant requests.
	ErrTenantFull = errors.New("too many requests of this client")
)

// Config holds the bounds of a Limiter. All except Active must be at least 1.
type Config struct {
	Requests  int // requests between Enter and Leave
	PerTenant int // of these, requests of one client
	Calls     int // requests of one client that run at a time while it is alone
	Shared    int // the same while other clients are active; at most Calls

	// Active is the time for which a client counts as active after its last request.
	Active time.Duration
}

// Limiter bounds requests. Its methods may be called from any goroutine.
type Limiter struct {
	config  Config
	units   int64 // of a semaphore that a request takes while other clients are active
	running atomic.Int64
	waiting atomic.Int64

	mu       sync.Mutex
	tenants  map[string]*tenant // clients with requests
	requests int
	last     [2]visit // the two clients that ended their last request most recently
}

// visit records when a client ended its last request.
type visit struct {
	name string
	at   time.Time
}

// tenant is a client with requests.
type tenant struct {
	name     string
	requests int
	places   *semaphore.Weighted
}

// New returns a limiter. Errors: invalid bounds.
func New(c Config) (*Limiter, error) {
	if min(c.Requests, c.PerTenant, c.Calls, c.Shared) < 1 || c.Shared > c.Calls || c.Active < 0 {
		return nil, fmt.Errorf("fair: invalid bounds: %+v", c)
	}
	return &Limiter{config: c, units: int64(c.Calls / c.Shared), tenants: map[string]*tenant{}}, nil
}

// Ticket is one request. Its methods must not be called concurrently.
type Ticket struct {
	limiter *Limiter
	tenant  *tenant
	held    int64 // units of the client's semaphore
	left    bool
}

// Enter admits a request. Leave ends it. Errors: ErrFull, ErrTenantFull.
func (l *Limiter) Enter(name string) (*Ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.requests >= l.config.Requests {
		return nil, ErrFull
	}
	t := l.tenants[name]
	if t == nil {
		t = &tenant{name: name, places: semaphore.NewWeighted(int64(l.config.Calls))}
		l.tenants[name] = t
	} else if t.requests >= l.config.PerTenant {
		return nil, ErrTenantFull
	}
	t.requests++
	l.requests++
	return &Ticket{limiter: l, tenant: t}, nil
}

// shared reports whether clients other than t are active.
func (l *Limiter) shared(t *tenant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tenants) > 1 {
		return true
	}
	other := &l.last[0]
	if other.name == t.name {
		other = &l.last[1]
	}
	return !other.at.IsZero() && time.Since(other.at) < l.config.Active
}

// Wait waits for a place, which Yield or Leave frees. It returns immediately if the ticket has one.
// If the context ends first, Wait returns its error and may be called again.
func (k *Ticket) Wait(ctx context.Context) error {
	if k.held > 0 {
		return nil
	}
	l := k.limiter
	units := int64(1)
	if l.shared(k.tenant) {
		units = l.units
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !k.tenant.places.TryAcquire(units) {
		l.waiting.Add(1)
		err := k.tenant.places.Acquire(ctx, units)
		l.waiting.Add(-1)
		if err != nil {
			return err
		}
	}
	l.running.Add(1)
	k.held = units
	return nil
}

// Yield frees the place, if the ticket has one, for the rest of a request that needs none.
func (k *Ticket) Yield() {
	if k.held > 0 {
		k.limiter.running.Add(-1)
		k.tenant.places.Release(k.held)
		k.held = 0
	}
}

// Leave frees the place and ends the request. Further calls do nothing.
func (k *Ticket) Leave() {
	if k.left {
		return
	}
	k.left = true
	k.Yield()
	l := k.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests--
	if k.tenant.requests--; k.tenant.requests == 0 {
		delete(l.tenants, k.tenant.name)
		if l.last[0].name != k.tenant.name {
			l.last[1] = l.last[0]
		}
		l.last[0] = visit{k.tenant.name, time.Now()}
	}
}

// Stats are the counts of a Limiter.
type Stats struct {
	Running  int // requests with a place
	Waiting  int // requests that wait for a place
	Requests int // requests between Enter and Leave
	Tenants  int // clients with requests
}

// Stats returns the current counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{int(l.running.Load()), int(l.waiting.Load()), l.requests, len(l.tenants)}
}
