//go:build cgo && linux

package memmgr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// Requests wait for work on a device, in a pool and at the limit of a tenant, until a deadline.
// Memory that is released meanwhile serves them too.
func TestFakeWaitingForTheDevice(t *testing.T) {
	fake, rt := onFake(t, sycltest.TwoGPUs)
	if fake == nil {
		return
	}
	gpu := testenv.Must(rt.Device("level_zero:gpu:0"))(t)
	q := testenv.Must(rt.NewQueue(nil, gpu, syclobj.OutOfOrder))(t)
	upstream := memmgr.USM(q, syclobj.USMDevice).(usmResource)
	p := memmgr.NewPool(upstream, memmgr.WithLimit(12<<20))
	tenant := testenv.Must(p.NewTenant("device", memmgr.TenantOptions{Hard: 4 << 20}))(t)
	for _, r := range []memmgr.Resource{p, tenant} {
		fake.Hold(true)
		release := func(size uintptr) *syclobj.Event {
			b := mustNew(t, r, size)
			ev := testenv.Must(q.Memset(b.Data(), 1, 1000))(t)
			require.NoError(t, b.SetPending(q, ev))
			b.Release()
			return ev
		}
		total := uintptr(12 << 20)
		if r == memmgr.Resource(tenant) {
			total = 4 << 20
		}
		held := mustNew(t, r, total/2)
		event := release(total / 2)
		_, err := memmgr.New(r, memmgr.Request{Size: total / 2})
		require.ErrorIs(t, err, memmgr.ErrOutOfMemory, "a request without a context does not wait for the device")
		ctx, cancel := context.WithCancel(context.Background())
		gone := request(r, ctx, total)
		waits(t, p, 1)
		half := request(r, context.Background(), total/2)
		waits(t, p, 2)
		cancel()
		require.ErrorIs(t, (<-gone).err, context.Canceled)
		held.Release()
		served(t, half).Release()
		all := request(r, context.Background(), total)
		waits(t, p, 1)
		fake.ReleaseAll()
		served(t, all).Release()
		fake.Hold(false)
		require.NoError(t, event.Close())
	}
	require.NoError(t, tenant.Close())
	require.NoError(t, p.Close())
	require.NoError(t, upstream.Close())
	require.NoError(t, q.Close())
	require.Zero(t, fake.Used(0))
}
