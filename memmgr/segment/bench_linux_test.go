package segment_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// readPages reads a byte of each page.
func readPages(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		seen += b[i]
	}
}

// seen prevents the compiler from removing the reads.
var seen byte

// BenchmarkFirstAttach attaches 1 GiB that another mapping filled and reads every page of it. In turns it does
// the same with mmap and munmap alone. The metric "x-plain" is the ratio of the medians; the goal is at most 1.1.
func BenchmarkFirstAttach(b *testing.B) {
	const size = 1 << 30
	r := newHost(b, segment.PeersWrite)
	buffer := heldBuffer(b, r, size)
	bytes := testenv.Must(buffer.Bytes())(b)
	for i := 0; i < size; i += 4096 {
		bytes[i] = 1
	}
	s, _, f := fileOf(b, buffer)
	benchmarkAttach(b, s, f, attachment(s, f))
}

// benchmarkAttach alternates with plain mappings.
func benchmarkAttach(b *testing.B, s segment.Segment, f *os.File, a segment.Attachment) {
	attach := func() {
		m, err := segment.Map(a)
		if err != nil {
			b.Fatal(err)
		}
		readPages(bytesOf(m))
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
	mmap := func() {
		p, err := syscall.Mmap(int(f.Fd()), 0, int(s.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			b.Fatal(err)
		}
		readPages(p)
		if err := syscall.Munmap(p); err != nil {
			b.Fatal(err)
		}
	}
	timed := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	var ours, plain []time.Duration
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 { // either may gain from the other's tables that were just freed
			ours = append(ours, timed(attach))
			plain = append(plain, timed(mmap))
		} else {
			plain = append(plain, timed(mmap))
			ours = append(ours, timed(attach))
		}
	}
	slices.Sort(ours)
	slices.Sort(plain)
	median := len(ours) / 2
	b.ReportMetric(float64(ours[median])/float64(plain[median]), "x-plain")
	b.ReportMetric(float64(plain[median].Microseconds())/1000, "plain-ms")
}
