//go:build cgo && linux

package memmgr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// Requests wait for work on a device, in a pool and at the limit of a tenant, until a deadline.
// Memory that is released meanwhile serves them too.
func TestFakeWaitingForTheDevice(t *testing.T) {
	onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := testenv.Must(rt.Device("level_zero:gpu:0"))(t)
		q := testenv.Opened(rt.NewQueue(nil, gpu, syclobj.OutOfOrder))(t)
		p := newPool(t, testsycl.USM(t, q, syclobj.USMDevice), memmgr.WithLimit(12<<20))
		tenant := newTenant(t, p, "device", memmgr.TenantOptions{Hard: 4 << 20})
		for _, r := range []memmgr.Resource{p, tenant} {
			fake.Hold(true)
			total := uintptr(12 << 20)
			if r == memmgr.Resource(tenant) {
				total = 4 << 20
			}
			held := mustNew(t, r, total/2)
			b := mustNew(t, r, total/2)
			require.NoError(t, b.SetPending(q, testenv.Opened(q.Memset(b.Data(), 1, 1000))(t)))
			b.Release()
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
		}
	})
}
