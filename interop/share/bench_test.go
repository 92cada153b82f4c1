//go:build linux

package share_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// roleEcho answers 64 bytes with the same, on a stream socket: the peer of the benchmark.
func roleEcho(address string) error {
	c, err := net.Dial("unix", address)
	if err != nil {
		return err
	}
	b := make([]byte, 64)
	for {
		if _, err := io.ReadFull(c, b); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
}

// BenchmarkHandOver hands an array in a known segment to another process, which opens it,
// acknowledges, receives and releases it, beside a round trip of 64 bytes between two
// processes on a Unix socket: in turns, in one run. The bound is 1.7.
func BenchmarkHandOver(b *testing.B) {
	peers := make(chan *share.Peer, 1)
	s := listen(b, share.Options{Connected: func(p *share.Peer) { peers <- p }})
	o := start(b, "acked", s.Address())
	o.expect("ready")
	p := <-peers
	l, err := net.Listen("unix", "@usmbridge-bench-"+strconv.Itoa(o.cmd.Process.Pid))
	require.NoError(b, err)
	defer func() { _ = l.Close() }()
	start(b, "echo", l.Addr().String())
	c, err := l.Accept()
	require.NoError(b, err)
	defer func() { _ = c.Close() }()
	message := make([]byte, 64)
	trip := func() {
		_, err := c.Write(message)
		require.NoError(b, err)
		_, err = io.ReadFull(c, message)
		require.NoError(b, err)
	}
	for _, size := range []struct {
		name  string
		bytes int
	}{{"4KiB", 4 << 10}, {"1GiB", 1 << 30}} {
		b.Run(size.name, func(b *testing.B) {
			r, err := segment.NewHost(segment.PeersWrite)
			require.NoError(b, err)
			pool := memmgr.NewPool(r)
			a, err := usmarray.New(pool, usmarray.Uint8, []int{size.bytes})
			require.NoError(b, err)
			give := func() {
				if err := p.Give(context.Background(), "", a); err != nil {
					b.Fatal(err)
				}
			}
			ratios := pairs(b, give, trip)
			b.ReportMetric(ratios, "ratio")
			a.Release()
			require.Eventually(b, func() bool { return s.Stats().Leases == 0 }, soon, time.Millisecond)
			require.NoError(b, pool.Close())
			require.NoError(b, r.Close())
		})
	}
	require.NoError(b, p.Close())
}

// pairs runs ours and the other side's work in turns, and returns the median of the ratios
// of their times.
func pairs(b *testing.B, ours, theirs func()) float64 {
	const batch = 200
	for range batch {
		ours()
		theirs()
	}
	runtime.GC()
	var ratios []float64
	b.ResetTimer()
	for done := 0; done < b.N; done += batch {
		at := time.Now()
		for range batch {
			ours()
		}
		our := time.Since(at)
		b.StopTimer()
		at = time.Now()
		for range batch {
			theirs()
		}
		ratios = append(ratios, float64(our)/float64(time.Since(at)))
		b.StartTimer()
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}
