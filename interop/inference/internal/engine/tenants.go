package engine

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

const (
	// activeTime is how long a tenant counts as active after its last request.
	activeTime = time.Second
	// serialTurns is the number of turns of serial models. The runner runs one call at a time; the second
	// one begins without a delay.
	serialTurns = 2
)

// account is a tenant: its memory, its turns and its requests.
type account struct {
	name          string         // as the first request gave it; may be a secret
	label         string         // for logs and reports: oip.TenantLabel
	memory, calls *memmgr.Tenant // the same if calls have no pool of their own
	// turns and serial bound the requests that run at a time: of serial models, and of all others.
	turns, serial *semaphore.Weighted

	// Guarded by accounts.
	requests int
	idle     *list.Element // in accounts.idle while there are no requests
	left     time.Time     // the end of the last request
}

// accounts is the table of tenants. It bounds the requests of each tenant: how many exist, and how many
// run at a time. A request beyond the bounds is refused immediately.
//
// If the table is full, the tenant that has been idle for the longest time makes room. If no tenant is
// idle, further clients are one tenant together, oip.OtherTenants. Memory of a tenant that was removed
// stays valid.
type accounts struct {
	o                *Options
	active           time.Duration // activeTime, except in tests
	running, waiting atomic.Int64  // requests that have their turn, or wait for it

	mu       sync.Mutex
	byLabel  map[string]*account // one per label, because the pools take each name once
	idle     list.List           // of *account, longest idle first
	requests int
}

// ticket is a request of a tenant. Its methods must not be called concurrently.
type ticket struct {
	*account
	accounts *accounts
	isSerial bool
	held     int64 // units of a semaphore
}

func newAccounts(o *Options) *accounts {
	return &accounts{o: o, active: activeTime, byLabel: map[string]*account{}}
}

// share returns the bounds of a tenant in a pool.
func share(limit uint64) memmgr.TenantOptions {
	return memmgr.TenantOptions{Soft: limit / 4, Hard: limit - limit/8}
}

// enter admits a request of a tenant. leave ends it. Errors: Busy, if a bound is reached.
func (a *accounts) enter(name string, serial bool) (k ticket, err error) {
	label := oip.TenantLabel(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.requests >= a.o.Requests {
		return k, busy("too many requests are being served", nil)
	}
	if a.byLabel[label] == nil && len(a.byLabel) >= a.o.Tenants && name != oip.OtherTenants {
		if first := a.idle.Front(); first != nil {
			a.remove(first)
		} else {
			name, label = oip.OtherTenants, oip.OtherTenants
		}
	}
	t := a.byLabel[label]
	if t == nil {
		if t, err = a.open(name, label); err != nil {
			return k, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
		}
		a.byLabel[label] = t
	}
	if t.requests >= a.o.PerTenant {
		return k, busy("too many requests of this client are being served", nil)
	}
	if t.idle != nil {
		a.idle.Remove(t.idle)
		t.idle = nil
	}
	t.requests++
	a.requests++
	return ticket{account: t, accounts: a, isSerial: serial}, nil
}

// open opens the tenants of the pools.
func (a *accounts) open(name, label string) (*account, error) {
	t := &account{name: name, label: label, turns: semaphore.NewWeighted(int64(a.o.Turns)), serial: semaphore.NewWeighted(serialTurns)}
	var err error
	if t.memory, err = a.o.Memory.NewTenant(label, share(a.o.Limit)); err != nil {
		return nil, err
	}
	if t.calls = t.memory; a.o.Calls != nil {
		if t.calls, err = a.o.Calls.NewTenant(label, share(a.o.CallsLimit)); err != nil {
			_ = t.memory.Close()
			return nil, err
		}
	}
	return t, nil
}

// remove removes an idle account and closes its tenants. Their memory in use stays charged until it is
// freed. a.mu is held.
func (a *accounts) remove(idle *list.Element) {
	t := a.idle.Remove(idle).(*account) //nolint:forcetypeassert // the list has no other elements
	delete(a.byLabel, t.label)
	_ = t.memory.Close()
	_ = t.calls.Close()
}

// close removes all idle accounts.
func (a *accounts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.idle.Len() > 0 {
		a.remove(a.idle.Front())
	}
}

// othersActive reports whether other tenants are active than one that has a request.
func (a *accounts) othersActive() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.byLabel)-a.idle.Len() > 1 {
		return true
	}
	last := a.idle.Back()
	return last != nil && time.Since(last.Value.(*account).left) < a.active
}

// wait waits for the turn of the request, which yield or leave ends. It returns immediately if the
// request has its turn. The requests of one tenant get their turns in order. While a tenant is alone,
// Options.Turns of its requests run at a time, and Options.Shared while other tenants are active. If the
// context ends first, wait returns its error and may be called again.
func (k *ticket) wait(ctx context.Context) error {
	if k.held > 0 {
		return nil
	}
	o, turns := k.accounts.o, k.turns
	alone, shared := o.Turns, min(o.Shared, o.Turns)
	if k.isSerial {
		turns, alone, shared = k.serial, serialTurns, 1
	}
	units := int64(1)
	if k.accounts.othersActive() {
		units = int64(alone / shared)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !turns.TryAcquire(units) {
		k.accounts.waiting.Add(1)
		err := turns.Acquire(ctx, units)
		k.accounts.waiting.Add(-1)
		if err != nil {
			return err
		}
	}
	k.accounts.running.Add(1)
	k.held = units
	return nil
}

// yield ends the turn of the request, if it has its turn.
func (k *ticket) yield() {
	if k.held == 0 {
		return
	}
	k.accounts.running.Add(-1)
	if k.isSerial {
		k.serial.Release(k.held)
	} else {
		k.turns.Release(k.held)
	}
	k.held = 0
}

// leave ends the request. It is called once.
func (k *ticket) leave() {
	k.yield()
	a := k.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests--
	if k.requests--; k.requests == 0 {
		k.left = time.Now()
		k.idle = a.idle.PushBack(k.account)
	}
}

// TenantStats are the counts of one tenant.
type TenantStats struct {
	Name     string
	Requests int    // between Begin and End
	Bytes    uint64 // of memory in use
}

// stats returns the number of requests, and the counts of all tenants, in no order.
func (a *accounts) stats() (requests int, tenants []TenantStats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.byLabel {
		bytes := t.memory.Stats().AllocatedBytes.Current
		if t.calls != t.memory {
			bytes += t.calls.Stats().AllocatedBytes.Current
		}
		tenants = append(tenants, TenantStats{t.name, t.requests, uint64(max(bytes, 0))})
	}
	return a.requests, tenants
}
