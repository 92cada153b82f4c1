package engine

import (
	"container/list"
	"sync"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

// account is a tenant and its memory.
type account struct {
	name  string // as the first request gave it; may be a secret
	label string // for logs and reports: oip.TenantLabel
	open  sync.Once
	// Set by open.
	memory, calls *memmgr.Tenant // the same where calls have no pool of their own
	err           error
	// Guarded by accounts.
	there bool          // open is done, and err is nil
	users int           // requests
	idle  *list.Element // in accounts.idle while there are none
}

// accounts is the table of tenants. If it is full, the tenant that has been idle for the longest time
// makes room. If no tenant is idle, further clients are one tenant together, oip.OtherTenants. Memory
// of a tenant that was removed stays valid.
type accounts struct {
	pool, calls       *memmgr.Pool // calls may be nil
	options, forCalls memmgr.TenantOptions
	most              int

	mu      sync.Mutex
	byLabel map[string]*account // one per label, because the pools take each name once
	idle    list.List           // of *account, longest idle first
}

func (a *accounts) init(o *Options) {
	a.pool, a.calls, a.most, a.byLabel = o.Memory, o.Calls, o.Tenants, map[string]*account{}
	a.options = share(o.Limit)
	if a.forCalls = a.options; a.calls != nil {
		a.forCalls = share(o.CallsLimit)
	}
}

func share(limit uint64) memmgr.TenantOptions {
	return memmgr.TenantOptions{Soft: limit / 4, Hard: limit - limit/8}
}

// enter returns the account of a tenant. The caller ends its use with leave.
func (a *accounts) enter(name string) (*account, error) {
	t := a.find(name)
	// Outside the lock: opening an account stops the pool's shards for a moment.
	t.open.Do(func() {
		t.err = t.begin(a)
		a.mu.Lock()
		t.there = t.err == nil
		a.mu.Unlock()
	})
	if t.err != nil {
		a.fail(t)
		return nil, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: t.err}
	}
	return t, nil
}

// begin opens the tenants of the pools.
func (t *account) begin(a *accounts) (err error) {
	if t.memory, err = a.pool.NewTenant(t.label, a.options); err != nil {
		return err
	}
	if t.calls = t.memory; a.calls != nil {
		if t.calls, err = a.calls.NewTenant(t.label, a.forCalls); err != nil {
			_ = t.memory.Close()
		}
	}
	return err
}

// close closes the tenants. Their memory in use stays charged until it is freed.
func (t *account) close() {
	if t.there {
		_ = t.memory.Close()
		_ = t.calls.Close()
	}
}

// fail removes an account that could not be opened. The next request tries again.
func (a *accounts) fail(t *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byLabel[t.label] == t {
		delete(a.byLabel, t.label)
	}
}

// find returns the account of a tenant and counts a user of it. The account may be new and not open
// yet. It may replace the account that has been idle for the longest time, which is closed under the
// lock, because the pools refuse a second tenant of the same name.
func (a *accounts) find(name string) *account {
	label := oip.TenantLabel(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byLabel[label] == nil && name != oip.OtherTenants {
		first, full := a.idle.Front(), len(a.byLabel) >= a.most
		switch {
		case full && first == nil:
			name, label = oip.OtherTenants, oip.OtherTenants
		case full:
			a.forget(first.Value.(*account)) //nolint:forcetypeassert // the list has no others
		}
	}
	t := a.byLabel[label]
	if t == nil {
		t = &account{name: name, label: label}
		a.byLabel[label] = t
	}
	if t.idle != nil {
		a.idle.Remove(t.idle)
		t.idle = nil
	}
	t.users++
	return t
}

func (a *accounts) leave(t *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.users--; t.users == 0 {
		t.idle = a.idle.PushBack(t)
	}
}

// forget removes an idle account and closes it. a.mu is held.
func (a *accounts) forget(t *account) {
	a.idle.Remove(t.idle)
	delete(a.byLabel, t.label)
	t.close()
}

// close removes all idle accounts.
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

// list returns the counts of all accounts, in no order.
func (a *accounts) list() []TenantStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]TenantStats, 0, len(a.byLabel))
	for _, t := range a.byLabel {
		if !t.there {
			continue
		}
		bytes := t.memory.Stats().AllocatedBytes.Current
		if t.calls != t.memory {
			bytes += t.calls.Stats().AllocatedBytes.Current
		}
		out = append(out, TenantStats{t.name, t.users, uint64(max(bytes, 0))})
	}
	return out
}
