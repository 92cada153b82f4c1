package usmarray_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestArraysAsleep: arrays whose memory sleeps still describe themselves and refuse other operations.
// Arrays that share memory keep it awake.
func TestArraysAsleep(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory has no pages here that could be given back")
	}
	p := memmgr.NewPool(memmgr.Host(), memmgr.WithDecay(0))
	defer func() { require.NoError(t, p.Close()) }()
	a, err := usmarray.New(p, usmarray.Float32, []int{1 << 20}, usmarray.WithTag("weights"))
	require.NoError(t, err)
	defer a.Release()
	require.NoError(t, a.Fill(1.5))

	shared := a.Retain()
	var held *memmgr.HeldError
	_, err = p.Sleep("weights", memmgr.SleepOptions{})
	require.ErrorAs(t, err, &held)
	require.Equal(t, 1, held.Held)
	shared.Release()

	freed, err := p.Sleep("weights", memmgr.SleepOptions{Into: memmgr.Host()})
	require.NoError(t, err)
	require.EqualValues(t, 4<<20, freed)
	require.Equal(t, []int{1 << 20}, a.Shape())
	require.True(t, a.Valid())
	func() {
		defer func() {
			e, ok := recover().(error)
			require.True(t, ok)
			var use *usmarray.UseError
			require.ErrorAs(t, e, &use)
			require.ErrorIs(t, e, memmgr.ErrAsleep)
			require.NotErrorIs(t, e, memmgr.ErrReleased)
		}()
		_ = a.Fill(2)
		require.Fail(t, "a sleeping array was filled")
	}()
	require.NoError(t, p.Wake("weights"))
	at, err := a.At(12345)
	require.NoError(t, err)
	require.EqualValues(t, 1.5, at)
}
