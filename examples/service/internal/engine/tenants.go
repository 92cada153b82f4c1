package engine

import (
	"container/list"
	"sync"

	"github.com/usmbridge/usmbridge/examples/service/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

// account is the memory of one tenant.
type account struct {
	name   string
	memory *memmgr.Tenant
	// Guarded by accounts.
	users int           // requests
	idle  *list.Element // in accounts.idle while there are none
}

// accounts are the tenants that are remembered, at most so many: the one that has had no
// request for longest is forgotten first. Memory of a tenant that is forgotten stays valid.
type accounts struct {
	pool    *memmgr.Pool
	options memmgr.TenantOptions
	most    int

	mu     sync.Mutex
	byName map[string]*account
	idle   list.List // of *account, longest first
}

func (a *accounts) init(pool *memmgr.Pool, limit uint64, most int) {
	a.pool, a.most, a.byName = pool, most, map[string]*account{}
	a.options = memmgr.TenantOptions{Soft: limit / 4, Hard: limit - limit/8}
}

// enter is the account of a tenant, to be left.
func (a *accounts) enter(name string) (*account, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.byName[name]
	if t != nil {
		if t.idle != nil {
			a.idle.Remove(t.idle)
			t.idle = nil
		}
		t.users++
		return t, nil
	}
	for len(a.byName) >= a.most {
		first := a.idle.Front()
		if first == nil {
			return nil, &oip.Error{Kind: oip.Busy, Message: "more clients are being served than may be at a time", RetryAfter: retryAfter}
		}
		a.forget(first.Value.(*account))
	}
	memory, err := a.pool.NewTenant(name, a.options)
	if err != nil {
		return nil, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
	}
	t = &account{name: name, memory: memory, users: 1}
	a.byName[name] = t
	return t, nil
}

func (a *accounts) leave(t *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.users--; t.users == 0 {
		t.idle = a.idle.PushBack(t)
	}
}

// forget closes an idle account. The lock is held.
func (a *accounts) forget(t *account) {
	a.idle.Remove(t.idle)
	delete(a.byName, t.name)
	_ = t.memory.Close() // never fails: what is out counts until it is back
}

// close forgets all that are idle.
func (a *accounts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.idle.Len() > 0 {
		a.forget(a.idle.Front().Value.(*account))
	}
}

// TenantStats are the counts of one tenant.
type TenantStats struct {
	Name     string
	Requests int    // that are there
	Bytes    uint64 // that it holds
}

// list is what is remembered, in no order.
func (a *accounts) list() []TenantStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]TenantStats, 0, len(a.byName))
	for _, t := range a.byName {
		s := t.memory.Stats()
		out = append(out, TenantStats{t.name, t.users, uint64(max(s.AllocatedBytes.Current, 0))})
	}
	return out
}
