package engine

import (
	"container/list"
	"sync"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

// account is a tenant and its memory.
type account struct {
	name          string         // as the first request gave it; may be a secret
	label         string         // for logs and reports: oip.TenantLabel
	memory, calls *memmgr.Tenant // the same if calls have no pool of their own
	// Guarded by accounts.
	requests int
	idle     *list.Element // in accounts.idle while there are no requests
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

// enter returns the account of a tenant and counts a request. leave ends the request.
func (a *accounts) enter(name string) (*account, error) {
	label := oip.TenantLabel(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byLabel[label] == nil && len(a.byLabel) >= a.most && name != oip.OtherTenants {
		if first := a.idle.Front(); first != nil {
			a.remove(first)
		} else {
			name, label = oip.OtherTenants, oip.OtherTenants
		}
	}
	t := a.byLabel[label]
	if t == nil {
		var err error
		if t, err = a.open(name, label); err != nil {
			return nil, &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: err}
		}
		a.byLabel[label] = t
	}
	if t.idle != nil {
		a.idle.Remove(t.idle)
		t.idle = nil
	}
	t.requests++
	return t, nil
}

// open opens the tenants of the pools.
func (a *accounts) open(name, label string) (*account, error) {
	memory, err := a.pool.NewTenant(label, a.options)
	if err != nil {
		return nil, err
	}
	calls := memory
	if a.calls != nil {
		if calls, err = a.calls.NewTenant(label, a.forCalls); err != nil {
			_ = memory.Close()
			return nil, err
		}
	}
	return &account{name: name, label: label, memory: memory, calls: calls}, nil
}

func (a *accounts) leave(t *account) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.requests--; t.requests == 0 {
		t.idle = a.idle.PushBack(t)
	}
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

// TenantStats are the counts of one tenant.
type TenantStats struct {
	Name     string
	Requests int    // between Begin and End
	Bytes    uint64 // of memory in use
}

// list returns the counts of all accounts, in no order.
func (a *accounts) list() []TenantStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]TenantStats, 0, len(a.byLabel))
	for _, t := range a.byLabel {
		bytes := t.memory.Stats().AllocatedBytes.Current
		if t.calls != t.memory {
			bytes += t.calls.Stats().AllocatedBytes.Current
		}
		out = append(out, TenantStats{t.name, t.requests, uint64(max(bytes, 0))})
	}
	return out
}
