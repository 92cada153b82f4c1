package memmgr_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// The system refuses more address space at many places of a script that allocates blocks of all
// sizes from the host and from a pool. Each refusal is a typed error, all memory is freed, and the
// whole script succeeds when there is address space again. The limit leaves enough for the Go
// runtime, which would end the program otherwise.
func TestEveryAddressLimit(t *testing.T) {
	if instrumented {
		t.Skip("a sanitizer takes many TiB of addresses, and more as it goes")
	}
	if out, child := memmgr.Child(t, "GOGC=off"); !child {
		t.Log(out)
		return
	}
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_AS, &was))
	pool := memmgr.NewPool(memmgr.Host())
	script := func() (refused int) {
		var held []memmgr.Buffer
		for i := range 24 {
			for _, r := range []memmgr.Resource{memmgr.Host(), pool} {
				b, err := memmgr.New(r, memmgr.Request{Size: uintptr(1+i) << 20})
				if err != nil {
					testenv.As[*memmgr.OutOfMemoryError](t, err)
					require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
					refused++
					continue
				}
				mem := testenv.Must(b.Bytes())(t)
				mem[0], mem[len(mem)-1] = 1, 1
				held = append(held, b)
			}
		}
		releaseAll(held)
		n, _ := memmgr.LiveCount()
		require.Zero(t, n)
		pool.Trim(0)
		require.Zero(t, pool.Stats().ReservedBytes.Current)
		return refused
	}
	require.Zero(t, script())
	last, all := -1, 0
	const most, step = 800 << 20, 16 << 20
	for room := uint64(128 << 20); room <= most; room += step { // 128 MiB are Go's own
		var pages uint64
		text := testenv.Must(os.ReadFile("/proc/self/statm"))(t)
		_, err := fmt.Sscan(string(text), &pages)
		require.NoError(t, err)
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: pages*uint64(os.Getpagesize()) + room, Max: was.Max}))
		refused := script()
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_AS, &was))
		if last < 0 {
			require.Positive(t, refused, "the first limit was meant to be reached")
		}
		last = refused
		all += refused
		require.Zero(t, script(), "with room again")
	}
	require.NoError(t, pool.Close())
	t.Logf("%d requests refused", all)
}
