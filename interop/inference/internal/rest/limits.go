package rest

import (
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// limits bound the bodies of requests. Tests use smaller ones.
type limits struct {
	body   int64         // bytes of a body as sent
	json   int64         // bytes of the JSON of a request
	all    int64         // bytes of the JSON of all requests in flight
	tenant int64         // bytes of the JSON of all requests of a tenant in flight
	rate   int64         // bytes per second that a client must send and read
	grace  time.Duration // added to the time for a body, in both directions
}

var defaults = limits{body: 1 << 30, json: 64 << 20, all: 256 << 20, tenant: 192 << 20, rate: 1 << 20, grace: 10 * time.Second}

// Other limits of bodies.
const (
	maxSmall     = 64 << 10        // bytes of a body that has no tensors
	maxDrained   = 4 << 20         // bytes of the body of a refused request that are read
	drainTime    = 2 * time.Second // for these bytes
	piece        = 256 << 10       // bytes of a response that are formatted and written at a time
	leastEncoded = 1 << 10         // bytes of a response that is worth compressing
)

// Limits of the JSON of a request. They bound the memory that a short text can take in Go.
const (
	maxList    = 256     // inputs, outputs, and extents of a shape
	maxMembers = 8 << 10 // members of all objects together
	maxDepth   = 64
	maxID      = 4 << 10 // bytes of the id, as written

	// spared is the size up to which JSON is always accepted, in bytes: connections are bounded, and large
	// bodies must not keep out small ones.
	spared = 16 << 10
)

// gate bounds the bytes of Go's heap that the JSON of all requests takes, and of each tenant, so that other
// tenants are served while one sends slowly.
type gate struct {
	limits *limits
	mu     sync.Mutex
	used   int64
	by     map[string]int64 // tenants that have some
}

// take charges n bytes to a tenant, for a request that has had bytes already. Errors: Busy.
func (g *gate) take(tenant string, n, had int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if had+n > spared && (g.used+n > g.limits.all || g.by[tenant]+n > g.limits.tenant) {
		return &oip.Error{Kind: oip.Busy, Message: "too much JSON is being served", RetryAfter: time.Second}
	}
	g.used += n
	g.by[tenant] += n
	return nil
}

// give ends a charge.
func (g *gate) give(tenant string, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= n
	if g.by[tenant] -= n; g.by[tenant] == 0 {
		delete(g.by, tenant)
	}
}
