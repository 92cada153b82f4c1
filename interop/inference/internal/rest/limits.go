package rest

import "time"

// limits bound the bodies of requests. Tests use smaller ones.
type limits struct {
	body int64 // bytes of a body as sent
	json int64 // bytes of the JSON of a request
	// A client must send or read n bytes within grace, and perMiB for each MiB.
	grace, perMiB time.Duration
}

var defaults = limits{body: 1 << 30, json: 64 << 20, grace: 10 * time.Second, perMiB: time.Second}

// time returns the time for n bytes without the grace.
func (l *limits) time(n int64) time.Duration {
	return time.Duration(min(n, 8<<30)) * l.perMiB >> 20 // the product of the maximum fits
}

// Other limits of bodies.
const (
	maxJSON      = 256 << 20       // bytes of the JSON of all requests together
	maxSmall     = 64 << 10        // bytes of a body that has no tensors
	maxDrained   = 4 << 20         // bytes of the body of a refused request that are read
	drainTime    = 2 * time.Second // for these bytes
	piece        = 256 << 10       // bytes of a response that are formatted and written at a time
	leastEncoded = 1 << 10         // bytes of a response that is worth compressing
)

// Limits of the JSON of a request. They bound the memory that a short text can take in Go.
const (
	maxList = 256     // inputs, outputs, and extents of a shape
	maxID   = 4 << 10 // bytes of the id, as written

	// spared is the size up to which JSON is not charged, in bytes: connections are bounded, and large bodies
	// must not keep out small ones.
	spared = 16 << 10
)
