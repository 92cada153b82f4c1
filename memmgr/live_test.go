package memmgr_test

import (
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/memmgr/report"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Live lists memory while imports and memory of other resources use the same cells by turns. Each entry is of one
// piece of memory.
func TestLiveBesideReuseOfCells(t *testing.T) {
	const rounds = 400
	if _, child := memmgr.Child(t); !child { // Live visits every cell that was ever used: earlier tests used 600,000
		return
	}
	var memory [8]byte
	sims := []memmgr.Resource{memtest.NewSimulated(), memtest.NewSimulated()}
	pool := memmgr.NewPool(memtest.NewSimulated())
	var stop atomic.Bool
	var wg sync.WaitGroup
	churn := func(make func() (memmgr.Buffer, error)) {
		wg.Go(func() {
			for !stop.Load() {
				var held [4]memmgr.Buffer
				for i := range held {
					b, err := make()
					if err != nil {
						panic(err)
					}
					held[i] = b
				}
				releaseAll(held[:])
				runtime.Gosched() // else each Live waits for a turn of all goroutines
			}
		})
	}
	churn(func() (memmgr.Buffer, error) {
		return memmgr.FromForeign(unsafe.Pointer(&memory), 7, memmgr.ForeignOptions{Release: func() {}})
	})
	for _, r := range append(sims, memmgr.Resource(pool)) {
		churn(func() (memmgr.Buffer, error) { return memmgr.New(r, memmgr.Request{Size: 777, Tag: "sim"}) })
	}
	defer func() { stop.Store(true); wg.Wait(); require.NoError(t, pool.Close()) }()
	for range rounds {
		for _, b := range memmgr.Live() {
			require.NotNil(t, b.Place)
			switch {
			case b.Foreign || b.Address == uintptr(unsafe.Pointer(&memory)):
				require.Equal(t, memmgr.LiveBuffer{Address: uintptr(unsafe.Pointer(&memory)), Size: 7, Requested: 7,
					Count: 1, Place: syclobj.HostPlace(), Foreign: true, Stack: b.Stack}, b)
			case b.Resource == memmgr.Resource(pool):
				require.EqualValues(t, 777, b.Requested)
				require.Contains(t, []string{"", "sim"}, b.Tag)
			case slices.Contains(sims, b.Resource):
				require.EqualValues(t, 777, b.Requested)
				require.Equal(t, "sim", b.Tag)
			default:
				require.NotNil(t, b.Resource)
			}
		}
		require.NoError(t, report.WriteProfile(io.Discard))
		memmgr.LiveCount()
	}
}
