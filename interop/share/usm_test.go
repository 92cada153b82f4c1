//go:build cgo && linux

package share_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestUSM checks that USM is opened as USM of the same kind if the receiver has a queue, as host
// memory if the receiver sets AsHost, and not at all otherwise. Export or Open waits for pending
// work.
func TestUSM(t *testing.T) {
	q := testsycl.Queue(t)
	for _, kind := range []syclobj.USMKind{syclobj.USMShared, syclobj.USMHost, syclobj.USMDevice} {
		t.Run(kind.String(), func(t *testing.T) {
			ctx := background(t)
			r, err := segment.NewUSM(q, kind, segment.PeersWrite)
			if err != nil {
				t.Skipf("no segments of USM here: %v", err)
			}
			pool := memmgr.NewPool(r)
			defer func() {
				eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, "memory was not returned")
				require.NoError(t, pool.Close())
				require.NoError(t, r.Close())
			}()
			s := listen(t, share.Options{})
			a := testenv.Must(usmarray.Zeros(pool, usmarray.Float32, []int{1 << 20}))(t)
			defer a.Release()
			onQueue := dial(t, s, share.Options{Queue: q})
			asHost := dial(t, s, share.Options{AsHost: true})
			neither := dial(t, s, share.Options{})
			for i, noWait := range []bool{false, true} {
				value := float32(i + 1)
				for _, p := range []*share.Peer{onQueue, asHost, neither} {
					require.NoError(t, a.Fill(value)) // on device memory, the fill is pending
					h := testenv.Must(s.Export(ctx, a, share.ExportOptions{NoWait: noWait}))(t)
					b, err := p.Open(ctx, h)
					if p == neither {
						require.ErrorIs(t, err, share.ErrNotShared)
						continue
					}
					require.NoError(t, err)
					require.Equal(t, p == asHost, b.Place().IsHost())
					if p == onQueue {
						require.Equal(t, kind, b.Place().Kind())
					}
					got := testenv.Must(usmarray.ToSlice[float32](b))(t)
					require.Equal(t, value, got[0])
					require.Equal(t, value, got[1<<20-1])
					require.NoError(t, b.Fill(value+10))
					require.NoError(t, b.Wait())
					require.Equal(t, value+10, testenv.Must(usmarray.ToSlice[float32](a))(t)[12345])
					b.Release()
				}
			}
			for _, p := range []*share.Peer{onQueue, asHost} {
				p.Trim()
				eventually(t, func() bool { return p.Stats().Mapped == 0 }, "trimmed, and still mapped")
			}
		})
	}
}
