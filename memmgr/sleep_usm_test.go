//go:build cgo && linux

package memmgr_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// USM of each kind sleeps on an OpenCL CPU device and wakes with its contents. Copies on the queue work before
// and after.
func TestUSMSleeps(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "contents"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			rt := onOpenCLCPU(t)
			q := rt.DefaultQueue()
			r := memmgr.USM(q, kind).(usmResource)
			defer func() { require.NoError(t, r.Close()) }()
			p := memmgr.NewPool(r, memmgr.WithDecay(0))
			defer func() { require.NoError(t, p.Close()) }()
			sleepers, others := mixture(t, p, 100)
			defer releaseTagged(sleepers, others)
			// One block has recorded work on the queue.
			ev, err := q.Memcpy(sleepers[0].Data(), sleepers[1].Data(), 1)
			require.NoError(t, err)
			require.NoError(t, sleepers[0].SetPending(q, ev))
			require.NoError(t, ev.Close())
			sleepers[0].data[0] = sleepers[1].data[0]
			for _, options := range []memmgr.SleepOptions{
				{To: file, Context: t.Context()}, {Into: memmgr.Host(), Context: t.Context()},
			} {
				before := residentOfAll(sleepers)
				require.Greater(t, before, uintptr(20<<20))
				freed, err := p.Sleep("kv", options)
				require.NoError(t, err)
				require.GreaterOrEqual(t, freed, uint64(before))
				require.Zero(t, residentOfAll(sleepers))
				require.ErrorIs(t, memmgr.CopyOut(sleepers[0].Buffer, 0, make([]byte, 1)), memmgr.ErrAsleep)
				require.NoError(t, p.Wake("kv"))
				for _, x := range append(sleepers, others...) {
					x.require(t)
				}
			}
			rng := rand.New(rand.NewPCG(1, 1))
			one := newTagged(t, p, rng, "kv", 1<<20)
			two := newTagged(t, p, rng, "", 1<<20)
			defer releaseTagged([]tagged{one, two})
			_, err = p.Sleep("kv", memmgr.SleepOptions{})
			require.NoError(t, err)
			require.NoError(t, p.Wake("kv"))
			require.NoError(t, memmgr.CopyBuffer(one.Buffer, 0, two.Buffer, 0, 1<<20))
			one.data = two.data
			one.require(t)
			for i := range sleepers {
				require.NoError(t, memmgr.CopyIn(sleepers[i].Buffer, 0, sleepers[i].data))
				sleepers[i].require(t)
			}
		})
	}
}
