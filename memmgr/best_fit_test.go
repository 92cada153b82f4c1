package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// TestTheLastBlockThatFitsIsFound checks that a request is served as long as a free block fits, even if
// the size of the request's size class does not fit.
func TestTheLastBlockThatFitsIsFound(t *testing.T) {
	p := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(2<<20), memmgr.WithDecay(0))
	defer func() { require.NoError(t, p.Close()) }()
	// Allocate all but 129 units. The smallest size class that holds 129 units has 130.
	rest, err := memmgr.New(p, memmgr.Request{Size: 2<<20 - 129*256, Align: 512})
	require.NoError(t, err)
	defer rest.Release()
	b, err := memmgr.New(p, memmgr.Request{Size: 129 * 256})
	require.NoError(t, err)
	require.EqualValues(t, 129*256, b.Size())
	_, err = memmgr.New(p, memmgr.Request{Size: 1})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	b.Release()
	again, err := memmgr.New(p, memmgr.Request{Size: 129*256 - 5})
	require.NoError(t, err)
	again.Release()
}

// TestALargeRequestIsServedFromTheMiddleOfASegment checks the same for an aligned request without a
// size class.
func TestALargeRequestIsServedFromTheMiddleOfASegment(t *testing.T) {
	p := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(8<<20), memmgr.WithSegment(8<<20), memmgr.WithDecay(0))
	defer func() { require.NoError(t, p.Close()) }()
	small, err := memmgr.New(p, memmgr.Request{Size: 100})
	require.NoError(t, err)
	defer small.Release()
	for range 3 {
		b, err := memmgr.New(p, memmgr.Request{Size: 5 << 20, Align: 64 << 10})
		require.NoError(t, err)
		require.Zero(t, b.Address()%(64<<10))
		b.Release()
	}
}
