package memmgr_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// Goroutines ask a closed pool and its tenant while other cells take the place of the pool's drop list. The race
// detector reports nothing.
func TestNewOfAClosedPoolWhileItsListIsReused(t *testing.T) {
	other := memmgr.NewPool(memtest.NewSimulated())
	for range 50 {
		p := memmgr.NewPool(memtest.NewSimulated())
		tenant := testenv.Must(p.NewTenant("tenant", memmgr.TenantOptions{}))(t)
		require.NoError(t, p.Close())
		var asking sync.WaitGroup
		for _, r := range []memmgr.Resource{p, tenant} {
			asking.Go(func() {
				for range 20 {
					if _, err := memmgr.New(r, memmgr.Request{Size: 1000}); err == nil {
						t.Error("a closed pool returned memory")
					}
				}
			})
		}
		var taken []memmgr.Buffer
		for range 200 {
			taken = append(taken, mustNew(t, other, 100<<10))
		}
		for _, b := range taken {
			b.Release()
		}
		other.Trim(0)
		asking.Wait()
	}
	require.NoError(t, other.Close())
}
