//go:build linux

package share_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// kills returns the number of processes that a test kills. USMBRIDGE_HUNT overrides the default.
func kills(t *testing.T) int {
	const hunt = "USMBRIDGE_HUNT"
	if s := os.Getenv(hunt); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err, hunt)
		return n
	}
	return 50
}

// TestKilledAtRandom kills processes at random moments and checks that their leases end, and that no state
// is left.
func TestKilledAtRandom(t *testing.T) {
	n := kills(t)
	pool := newPool(t, segment.PeersWrite)
	peers := make(chan *share.Peer, 16)
	s := listen(t, share.Options{Connected: func(p *share.Peer) { peers <- p }})
	publish(t, s, pool, "a", 1000)
	before, slowest := 0, time.Duration(0)
	for i := range n {
		o := start(t, "random", s.Address())
		p := <-peers
		o.expect("ready")
		time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
		o.kill()
		at := time.Now()
		// The documentation promises one second on a machine that is not busy. Because this machine
		// can be busy with other tests, the test only logs the time.
		require.Eventually(t, func() bool { return s.Stats().Leases == 0 && s.Stats().Peers == 0 }, soon, 200*time.Microsecond)
		slowest = max(slowest, time.Since(at))
		<-p.Done()
		eventually(t, func() bool { return errors.Is(p.Err(), share.ErrDied) }, "the death is not reported")
		require.NoError(t, p.Close())
		require.EqualValues(t, 1, pool.Stats().Allocation.Current, "memory other than the published array is in use")
		eventually(t, func() bool { // see nothingMapped
			n, err := mappings()
			return err == nil && n == int(pool.Stats().Segment.Current)
		}, "mappings of the dead process stay, or mappings of this process are missing")
		if i == 0 {
			before = descriptors(t)
		}
		eventually(t, func() bool { return descriptors(t) <= before }, "descriptors stay")
	}
	t.Logf("%d processes killed; the last memory was back after %v at most", n, slowest)
}

// TestMakersKilledAtRandom kills the makers of arrays at random moments and checks that open arrays
// stay valid, that opening fails with an error, and that no state is left.
func TestMakersKilledAtRandom(t *testing.T) {
	before := 0
	for i := range kills(t) {
		o := start(t, "serve", "")
		p := testenv.Must(share.Dial(background(t), o.line(), share.Options{}))(t)
		time.AfterFunc(time.Duration(rand.IntN(int(10*time.Millisecond))), func() { _ = o.cmd.Process.Kill() })
		var kept []*usmarray.Array
		for {
			a, err := p.Attach(background(t), "a")
			if err != nil {
				require.ErrorIs(t, err, share.ErrClosed)
				break
			}
			kept = append(kept, a)
		}
		<-p.Done()
		for _, a := range kept {
			require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, testenv.Must(usmarray.ToSlice[float32](a))(t))
			a.Release()
		}
		require.NoError(t, p.Close())
		nothingMapped(t)
		o.kill()
		if i == 0 {
			before = descriptors(t)
		}
		eventually(t, func() bool { return descriptors(t) <= before }, "descriptors stay")
	}
}
