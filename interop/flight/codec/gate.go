package codec

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Default limits of a [Gate].
const (
	DefaultMaxMessage  = 1 << 30
	DefaultMaxHeader   = 64 << 10
	DefaultMaxStreams  = 256
	DefaultMaxInFlight = 2 << 30
)

// Limits limit the resources that peers can occupy on a server at one time. 0 means the default.
type Limits struct {
	MaxMessage  int   // bytes of one message
	MaxHeader   int   // total bytes of the fields of one message that are read with Incoming.Bytes
	MaxStreams  int   // open streams
	MaxInFlight int64 // total bytes of the messages that are being read; at least MaxMessage
}

// Gate enforces Limits over all streams of a server.
type Gate struct {
	limits   Limits
	streams  atomic.Int64
	inFlight atomic.Int64
	bytes    *semaphore.Weighted
}

// NewGate returns a gate with the given limits.
func NewGate(l Limits) *Gate {
	l.MaxMessage = orDefault(l.MaxMessage, DefaultMaxMessage)
	l.MaxHeader = orDefault(l.MaxHeader, DefaultMaxHeader)
	l.MaxStreams = orDefault(l.MaxStreams, DefaultMaxStreams)
	l.MaxInFlight = max(orDefault(l.MaxInFlight, DefaultMaxInFlight), int64(l.MaxMessage))
	return &Gate{limits: l, bytes: semaphore.NewWeighted(l.MaxInFlight)}
}

func orDefault[T int | int64](v, d T) T {
	if v <= 0 {
		return d
	}
	return v
}

// Limits returns the limits in effect, with defaults filled in.
func (g *Gate) Limits() Limits { return g.limits }

// Streams returns the number of open streams.
func (g *Gate) Streams() int { return int(g.streams.Load()) }

// InFlight returns the total bytes of the messages that are being read.
func (g *Gate) InFlight() int64 { return g.inFlight.Load() }

// Enter registers an open stream and returns a function that unregisters it, which may be called
// more than once. If the limit is exceeded, it returns a *LimitError instead of waiting: a refused
// peer can retry, while a waiting peer would keep its resources.
func (g *Gate) Enter() (leave func(), err error) {
	if n := g.streams.Add(1); n > int64(g.limits.MaxStreams) {
		g.streams.Add(-1)
		return nil, &LimitError{What: "streams at a time", Asked: n, Limit: int64(g.limits.MaxStreams)}
	}
	return sync.OnceFunc(func() { g.streams.Add(-1) }), nil
}

// charge reserves the bytes of a message before they are read. It waits until enough bytes are
// available. This cannot deadlock: a stream reads one message at a time, so a waiting stream holds
// no reservation that a reading stream needs.
func (g *Gate) charge(ctx context.Context, size int64) error {
	if size > int64(g.limits.MaxMessage) {
		return &LimitError{What: "bytes of a message", Asked: size, Limit: int64(g.limits.MaxMessage)}
	}
	if err := g.bytes.Acquire(ctx, size); err != nil {
		return err
	}
	g.inFlight.Add(size)
	return nil
}

// discharge returns the reservation of charge.
func (g *Gate) discharge(size int64) {
	g.inFlight.Add(-size)
	g.bytes.Release(size)
}
