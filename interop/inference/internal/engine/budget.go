package engine

import "sync"

// Budget bounds what requests take of a resource, such as bytes of Go's heap: all requests together, and
// those of each tenant, so that other tenants are served while one is slow. Its methods may be called from
// any goroutine.
type Budget struct {
	all, tenant int64

	mu       sync.Mutex
	used     int64
	byTenant map[string]int64 // tenants that have taken some
}

// NewBudget returns a budget of all units, of which a tenant has at most tenant.
func NewBudget(all, tenant int64) *Budget {
	return &Budget{all: all, tenant: tenant, byTenant: map[string]int64{}}
}

// Take charges n units to a tenant, and reports whether the bounds allow it. Give ends the charge.
func (b *Budget) Take(tenant string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.all || b.byTenant[tenant]+n > b.tenant {
		return false
	}
	b.used += n
	b.byTenant[tenant] += n
	return true
}

// Give ends the charge of n units.
func (b *Budget) Give(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.byTenant[tenant] -= n; b.byTenant[tenant] == 0 {
		delete(b.byTenant, tenant)
	}
}

// Used returns the units that are taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
