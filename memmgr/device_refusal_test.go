//go:build cgo && linux

package memmgr_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// TestFakeRefusedWaiters: requests that wait for memory of a device that other memory has taken name the
// device's refusal at the end of their context, ask it less and less often, and are served once it has memory.
func TestFakeRefusedWaiters(t *testing.T) {
	onFake(t, sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []sycltest.Device{
		{Type: syclobj.TypeGPU, Name: "small", Memory: 32 << 20},
	}}}, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		const ask = "DPCTLaligned_alloc_device"
		upstream := testsycl.USM(t, rt.DefaultQueue(), syclobj.USMDevice)
		other := testsycl.USM(t, rt.DefaultQueue(), syclobj.USMDevice)
		for name, options := range map[string][]memmgr.PoolOption{
			"room below the limit": {memmgr.WithLimit(24 << 20)},
			"without a limit":      nil,
		} {
			all := mustNew(t, other, 31<<20)
			p := memmgr.NewPool(upstream, options...)
			tenant := testenv.Must(p.NewTenant("tenant", memmgr.TenantOptions{}))(t)
			calls := fake.Calls(ask)
			for i, from := range []memmgr.Resource{p, tenant} {
				ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
				first, second := request(from, ctx, 4<<20), request(from, ctx, 8<<20)
				for _, c := range []chan granted{first, second} {
					err := (<-c).err
					require.ErrorIs(t, err, memmgr.ErrOutOfMemory, name)
					require.ErrorIs(t, err, context.DeadlineExceeded, name)
					require.ErrorIs(t, err, syclobj.ErrAllocation, "%s, %d", name, i)
					require.NotContains(t, err.Error(), "raise the limit", name)
				}
				cancel()
			}
			t.Logf("%s: %d calls", name, fake.Calls(ask)-calls)
			require.Less(t, fake.Calls(ask)-calls, 200, name)

			waiting := request(p, t.Context(), 4<<20)
			waits(t, p, 1)
			all.Release()
			b := served(t, waiting)
			b.Release()
			require.NoError(t, p.Close())
		}
	})
}
