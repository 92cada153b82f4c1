package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// TestTheLastBlockThatFitsIsFound checks that a request is served as long as a free block fits, even if
// the size of the request's size class does not fit.
func TestTheLastBlockThatFitsIsFound(t *testing.T) {
	p := newPool(t, memmgr.Host(), memmgr.WithLimit(2<<20), memmgr.WithDecay(0))
	// Allocate all but 129 units. The smallest size class that holds 129 units has 130.
	testenv.Held(memmgr.New(p, memmgr.Request{Size: 2<<20 - 129*256, Align: 512}))(t)
	b := mustNew(t, p, 129*256)
	require.EqualValues(t, 129*256, b.Size())
	require.ErrorIs(t, testenv.ErrorOf(memmgr.New(p, memmgr.Request{Size: 1})), memmgr.ErrOutOfMemory)
	b.Release()
	mustNew(t, p, 129*256-5).Release()
}

// TestALargeRequestIsServedFromTheMiddleOfASegment checks the same for an aligned request without a
// size class.
func TestALargeRequestIsServedFromTheMiddleOfASegment(t *testing.T) {
	p := newPool(t, memmgr.Host(), memmgr.WithLimit(8<<20), memmgr.WithSegment(8<<20), memmgr.WithDecay(0))
	small := mustNew(t, p, 100)
	defer small.Release()
	for range 3 {
		b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 5 << 20, Align: 64 << 10}))(t)
		require.Zero(t, b.Address()%(64<<10))
		b.Release()
	}
}

// TestAnAlignedRequestGetsItsNewSegment checks that a request is served from the segment that was allocated for
// it, although more free blocks come before it in the order of the search than the search tries.
func TestAnAlignedRequestGetsItsNewSegment(t *testing.T) {
	const mib = 1 << 20
	sim, p := simulatedPool(t, memmgr.WithDecay(0))
	first, err := sim.Allocate(memmgr.Request{Size: mib / 2}) // so that no segment has an aligned address
	require.NoError(t, err)
	defer sim.Free(first)
	var held, pieces []memmgr.Block
	for range 72 {
		p.Free(mustAllocate(t, p, 40*mib))
		pieces = append(pieces, mustAllocate(t, p, 36*mib))
		held = append(held, mustAllocate(t, p, 4*mib))
	}
	freeAll(p, pieces)
	b := testenv.Must(p.Allocate(memmgr.Request{Size: 33 * mib, Align: 64 * mib}))(t)
	require.Zero(t, b.Address%(64*mib))
	s := p.Stats()
	require.EqualValues(t, 73, s.NumDeviceAlloc)
	require.Zero(t, s.NumAllocRetries)
	freeAll(p, append(held, b))
}
