package memmgr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Every function that takes a resource refuses nil with an error.
func TestNilResourceIsRefused(t *testing.T) {
	pool := newPool(t, nil, memmgr.WithName("over nothing"))
	for name, r := range map[string]memmgr.Resource{
		"nil":        nil,
		"Pool":       (*memmgr.Pool)(nil),
		"Limit":      (*memmgr.Limit)(nil),
		"overNil":    pool,
		"limited":    memmgr.NewLimit(nil, 1<<20),
		"typed nil":  memmgr.NewLimit((*memmgr.Pool)(nil), 1<<20),
		"USM of nil": memmgr.USM(nil, 0),
	} {
		_, err := memmgr.New(r, memmgr.Request{Size: 1})
		require.ErrorIs(t, err, memmgr.ErrRequest, name)
		var op *memmgr.OpError
		require.ErrorAs(t, err, &op, name)
		_, ok := memmgr.As[*memmgr.Pool](r)
		require.Equal(t, r == memmgr.Resource(pool), ok, name)
	}
}

// A free of memory that is not allocated panics in the same way in all resources.
func TestWrongFreesPanicWithAUseError(t *testing.T) {
	_, pool := simulatedPool(t)
	for name, r := range map[string]memmgr.Resource{
		"Pool":      pool,
		"Host":      memmgr.Host(),
		"Simulated": memtest.NewSimulated(),
		"nil":       memmgr.NewLimit(nil, 100),
	} {
		func() {
			defer func() {
				err, ok := recover().(*memmgr.UseError)
				require.True(t, ok, "%s did not panic as it should", name)
				require.ErrorIs(t, err, memmgr.ErrReleased)
				require.Contains(t, err.Error(), "Free")
			}()
			r.Free(memmgr.Block{Address: 1, Size: 100})
		}()
	}
}

func TestReleaseOfNothingDoesNothing(t *testing.T) {
	var zero memmgr.Buffer
	zero.Release()
	require.False(t, zero.Valid())
	require.Panics(t, func() { zero.Data() })
}
