package codec

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// The bounds of a [Gate] that says nothing else.
const (
	DefaultMaxMessage  = 1 << 30
	DefaultMaxHeader   = 64 << 10
	DefaultMaxStreams  = 256
	DefaultMaxInFlight = 2 << 30
)

// Limits bound what peers can make a server do at a time. 0 is the default.
type Limits struct {
	MaxMessage  int   // bytes of one message
	MaxHeader   int   // bytes of a message's small fields, those taken by Incoming.Bytes
	MaxStreams  int   // streams that are open
	MaxInFlight int64 // bytes of the messages that are being read; at least MaxMessage
}

// Gate holds limits for all streams of a server.
type Gate struct {
	limits   Limits
	streams  atomic.Int64
	inFlight atomic.Int64
	bytes    *semaphore.Weighted
}

// NewGate makes a gate; limits of 0 are the defaults.
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

// Limits returns what holds.
func (g *Gate) Limits() Limits { return g.limits }

// Streams returns how many streams are open.
func (g *Gate) Streams() int { return int(g.streams.Load()) }

// InFlight returns the bytes of the messages that are being read.
func (g *Gate) InFlight() int64 { return g.inFlight.Load() }

// Enter opens a stream and returns the function that closes it, which may be called
// more than once. One stream too many is a *LimitError: a peer that is told can come
// back, one that waits holds what it has.
func (g *Gate) Enter() (leave func(), err error) {
	if n := g.streams.Add(1); n > int64(g.limits.MaxStreams) {
		g.streams.Add(-1)
		return nil, &LimitError{What: "streams at a time", Asked: n, Limit: int64(g.limits.MaxStreams)}
	}
	var left atomic.Bool
	return func() {
		if !left.Swap(true) {
			g.streams.Add(-1)
		}
	}, nil
}

// charge books a message before its bytes are read. It waits until others are through:
// a stream holds one message at a time, so those that wait hold nothing that those who
// read could need.
func (g *Gate) charge(ctx context.Context, size int) error {
	if size > g.limits.MaxMessage {
		return &LimitError{What: "bytes of a message", Asked: int64(size), Limit: int64(g.limits.MaxMessage)}
	}
	if err := g.bytes.Acquire(ctx, int64(size)); err != nil {
		return err
	}
	g.inFlight.Add(int64(size))
	return nil
}

func (g *Gate) discharge(size int) {
	g.inFlight.Add(-int64(size))
	g.bytes.Release(int64(size))
}
