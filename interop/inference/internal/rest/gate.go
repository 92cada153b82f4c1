package rest

import (
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// gate bounds bytes of Go's heap that all requests together have, and of them those of one tenant,
// so that others are served while it sends slowly.
type gate struct {
	limit int64
	each  int64 // of one tenant
	mu    sync.Mutex
	used  int64
	by    map[string]int64 // tenants that have some
}

// spared is the size up to which JSON is always taken: connections are bounded, and what holds
// much should not keep out what holds little.
const spared = 16 << 10

// take takes n bytes more for a tenant, which has had bytes for the same request. Errors: Busy.
func (g *gate) take(tenant string, n, had int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if had+n > spared && (g.used+n > g.limit || g.by[tenant]+n > g.each) {
		return &oip.Error{Kind: oip.Busy, Message: "as many bytes of JSON are being served as may be at a time", RetryAfter: time.Second}
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
