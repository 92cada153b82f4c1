package rest

import (
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/examples/service/internal/oip"
)

// gate bounds bytes of Go's heap that all requests together have.
type gate struct {
	limit int64
	used  atomic.Int64
}

// take takes n bytes. Errors: Busy.
func (g *gate) take(n int64) error {
	if g.used.Add(n) > g.limit {
		g.used.Add(-n)
		return &oip.Error{Kind: oip.Busy, Message: "as many bytes of JSON are being served as may be at a time", RetryAfter: time.Second}
	}
	return nil
}

func (g *gate) give(n int64) { g.used.Add(-n) }
