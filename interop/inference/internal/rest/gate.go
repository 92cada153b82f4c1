package rest

import (
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// gate bounds the bytes of Go's heap that the JSON of all requests takes, and of each tenant, so
// that others are served while one sends slowly.
type gate struct {
	limit int64
	each  int64 // of one tenant
	mu    sync.Mutex
	used  int64
	by    map[string]int64 // tenants that have some
}

// spared is the size up to which JSON is always accepted: connections are bounded, and large bodies
// must not keep out small ones.
const spared = 16 << 10

// take charges n bytes to a tenant, for a request that has had bytes already. Errors: Busy.
func (g *gate) take(tenant string, n, had int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if had+n > spared && (g.used+n > g.limit || g.by[tenant]+n > g.each) {
		return &oip.Error{Kind: oip.Busy, Message: "too much JSON is being served", RetryAfter: time.Second}
	}
	if g.by == nil {
		g.by = map[string]int64{}
	}
	g.used += n
	g.by[tenant] += n
	return nil
}

func (g *gate) give(tenant string, n int64) {
	if n == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= n
	if g.by[tenant] -= n; g.by[tenant] == 0 {
		delete(g.by, tenant)
	}
}

func (g *gate) inUse() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}
