package memmgr

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr/internal/account"
)

// TestTagsAreBounded allocates with many tags. The first have counts of their own, the rest one together, and
// the memory for the tags does not grow with their number.
func TestTagsAreBounded(t *testing.T) {
	const many = 5 * account.MostTags
	debugged(t, "", func() {
		for _, owner := range []string{"pool", "tenant", "host"} {
			p := NewPool(Host(), WithLimit(64<<20))
			tenant := testenv.Must(p.NewTenant("tenant", TenantOptions{}))(t)
			from := map[string]Resource{"pool": p, "tenant": tenant, "host": Host()}[owner]
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			buffers := make([]Buffer, many)
			for i := range buffers {
				buffers[i] = testenv.Must(New(from, Request{Size: 512, Tag: "tag " + strconv.Itoa(i)}))(t)
			}
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
			for i, b := range buffers {
				want := "tag " + strconv.Itoa(i)
				if i >= account.MostTags {
					want = "other"
				}
				require.Equal(t, want, b.Tag())
			}
			if owner != "host" {
				_, err := New(from, Request{Size: 128 << 20})
				oom := testenv.As[*OutOfMemoryError](t, err)
				require.Equal(t, "other", oom.Holders[0].Tag)
				require.EqualValues(t, many-account.MostTags, oom.Holders[0].Count)
			}
			for _, b := range buffers {
				b.Release()
			}
			require.NoError(t, tenant.Close())
			require.NoError(t, p.Close())
		}
	})
}
