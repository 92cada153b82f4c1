//go:build cgo && linux

package pymodule_test

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TestKeptMemoryIsFreeToGo checks that the counters of the pools do not include memory that Python arrays have
// released and that is cached for new ones, and that trimming a pool frees it. It runs in a child process, whose
// arrays come from the shared pools.
func TestKeptMemoryIsFreeToGo(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		keptMemory(t)
		return
	}
	inProcess(t, "kept")
}

func keptMemory(t *testing.T) {
	rt := testenv.Must(syclobj.Open())(t)
	require.NoError(t, pymodule.Register(pymodule.SetRuntime(rt)))
	py := testenv.Must(python.Start())(t)
	hold := func(names ...string) {
		_, err := py.Run(`
import usmbridge
a = usmbridge.empty(1 << 20, "uint8", device="host")
b = usmbridge.empty(5000, "uint8", device="host")
address = a._pointer
del a, b`, nil, names...)
		require.NoError(t, err)
	}
	hold()
	pool := testenv.Must(memmgr.Default(rt.HostQueue(), syclobj.USMUnknown))(t)
	for range 3 {
		s := pool.Stats()
		require.Zero(t, s.AllocatedBytes.Current)
		require.Zero(t, s.RequestedBytes.Current)
		require.Zero(t, s.Allocation.Current)
		hold()
		for _, segment := range pool.Snapshot().Segments {
			for _, block := range segment.Blocks {
				require.NotEqual(t, memmgr.BlockActive, block.State)
			}
		}
		hold()
		require.NotZero(t, pool.Trim(0))
		require.Zero(t, pool.Stats().ReservedBytes.Current)
		hold()
	}

	// While another thread creates and drops arrays, no block is lost and none is handed out twice.
	var done sync.WaitGroup
	stop := make(chan struct{})
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				pool.Stats()
			}
		}
	})
	_, err := py.Run(`
import usmbridge
for n in list(range(1, 70)) * 40:
    many = [usmbridge.empty(64 * n, "uint8", device="host") for _ in range(3)]
    assert len({a._pointer for a in many}) == 3
    for i, a in enumerate(many):
        a.fill(i)
    assert [int(a[-1]) for a in many] == [0, 1, 2]
del many, a`, nil)
	close(stop)
	done.Wait()
	require.NoError(t, err)
	s := pool.Stats()
	require.Zero(t, s.AllocatedBytes.Current)
	require.Zero(t, s.Allocation.Current)
}
