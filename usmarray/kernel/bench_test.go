package kernel_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// median ignores measurements that other processes disturbed.
func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkLaunch launches from Go and from a loop in C, alternately, and prints how many
// times as long Go takes ("x_C", wanted at most 1.3) beside the time of a launch from Go, as
// medians.
// Both wait after each 64 launches.
func BenchmarkLaunch(b *testing.B) {
	_, q := testsycl.Need(b)
	k := take(b, build(b, q, source), "scale")
	loop, end, err := sycltest.LaunchInC(q, source, "scale")
	require.NoError(b, err)
	defer end()
	r := resource(b, q, syclobj.USMDevice)
	for _, c := range []struct {
		name  string
		items int
	}{{"1 work-item", 1}, {"256 work-items", 256}, {"65536 work-items", 1 << 16}} {
		b.Run(c.name, func(b *testing.B) {
			x := own(b)(usmarray.Zeros(r, usmarray.Float32, []int{c.items}))
			y := own(b)(usmarray.Zeros(r, usmarray.Float32, []int{c.items}))
			const portion = 64
			inGo := func() {
				for range portion {
					if err := kernel.Launch(q, k, kernel.Over(c.items), kernel.Read(x), kernel.ReadWrite(y), kernel.Scalar(float32(2))); err != nil {
						b.Fatal(err)
					}
				}
				if err := y.Wait(); err != nil {
					b.Fatal(err)
				}
			}
			inC := func() {
				if err := loop(x.Pointer(), y.Pointer(), 2, c.items, portion, portion); err != nil {
					b.Fatal(err)
				}
			}
			inGo()
			inC()
			var ours, theirs []time.Duration
			for b.Loop() {
				start := time.Now()
				inGo()
				middle := time.Now()
				inC()
				ours, theirs = append(ours, middle.Sub(start)), append(theirs, time.Since(middle))
			}
			b.ReportMetric(float64(median(ours))/portion, "ns/launch")
			b.ReportMetric(float64(median(ours))/float64(median(theirs)), "x_C")
			b.ReportMetric(0, "ns/op")
		})
	}
}
