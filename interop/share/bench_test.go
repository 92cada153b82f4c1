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

// roleEcho echoes messages of 64 bytes on a stream socket, as the peer of the benchmark.
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

// BenchmarkHandOver measures handing over arrays of 4 KiB and 1 GiB in known segments to another
// process, which opens, acknowledges, receives and releases them. Its reference is a round trip of
// 64 bytes between two processes on a Unix socket. The three run alternately, so that none has the
// machine to itself. The metrics are medians of the ratios; the bound is 1.7.
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
		if _, err := c.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, message); err != nil {
			b.Fatal(err)
		}
	}
	r, err := segment.NewHost(segment.PeersWrite)
	require.NoError(b, err)
	pool := memmgr.NewPool(r)
	var arrays []*usmarray.Array
	give := func(bytes int) func() {
		a, err := usmarray.New(pool, usmarray.Uint8, []int{bytes})
		require.NoError(b, err)
		arrays = append(arrays, a)
		return func() {
			if err := p.Give(context.Background(), "", a); err != nil {
				b.Fatal(err)
			}
		}
	}
	ratios := byTurns(b, trip, give(4<<10), give(1<<30))
	b.ReportMetric(ratios[0], "4KiB-ratio")
	b.ReportMetric(ratios[1], "1GiB-ratio")
	for _, a := range arrays {
		a.Release()
	}
	require.Eventually(b, func() bool { return s.Stats().Leases == 0 }, soon, time.Millisecond)
	require.NoError(b, pool.Close())
	require.NoError(b, r.Close())
	require.NoError(b, p.Close())
}

// byTurns runs the reference and the measured operations alternately, and returns for each
// operation the median of its time divided by the time of the reference.
func byTurns(b *testing.B, theirs func(), ours ...func()) []float64 {
	const batch = 100
	timed := func(f func()) time.Duration {
		at := time.Now()
		for range batch {
			f()
		}
		return time.Since(at)
	}
	for _, f := range append(ours, theirs) {
		timed(f)
	}
	runtime.GC()
	ratios := make([][]float64, len(ours))
	b.ResetTimer()
	for done := 0; done < b.N; done += batch {
		b.StopTimer()
		their := timed(theirs)
		b.StartTimer()
		for i := range ours { // each operation runs first equally often
			i = (i + done/batch) % len(ours)
			ratios[i] = append(ratios[i], float64(timed(ours[i]))/float64(their))
		}
	}
	medians := make([]float64, len(ours))
	for i, all := range ratios {
		slices.Sort(all)
		medians[i] = all[len(all)/2]
	}
	return medians
}
