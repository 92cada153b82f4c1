package usmarray

import (
	"math"
	"testing"
	"time"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// batch is the number of calls per measurement.
const batch = 32

// least measures batches of several functions alternately, so that changes in the machine's speed affect all
// equally, and returns the shortest time of one call of each in nanoseconds. after, which may be nil, runs
// after each round and is not measured.
func least(after func(), work ...func()) []float64 {
	out := make([]float64, len(work))
	for i := range out {
		out[i] = math.Inf(1)
	}
	for range 2000 {
		for i, f := range work {
			t := time.Now()
			f()
			out[i] = min(out[i], float64(time.Since(t).Nanoseconds())/batch)
		}
		if after != nil {
			after()
		}
	}
	return out
}

// times returns a function that calls f for one batch.
func times(f func()) func() {
	return func() {
		for range batch {
			f()
		}
	}
}

// BenchmarkFromUSMInterface validates and wraps a dictionary with all pointer
// checks and releases the array. It prints the ratio of validating and wrapping
// alone to the same checks made from C plus three empty cgo calls.
func BenchmarkFromUSMInterface(b *testing.B) {
	rt, q := testsycl.Need(b)
	memmgr.RecordStacks(0)
	defer memmgr.RecordStacks(16)
	r := testsycl.USM(b, q, syclobj.USMShared)
	a, err := Zeros(r, Float32, []int{480, 640})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Release()
	released := 0
	release := func() { released++ }
	for _, c := range []struct {
		name string
		obj  SyclObj
	}{
		{"context", SyclObj{Context: q.Context()}},
		{"queue", SyclObj{Queue: q}},
		{"filter", SyclObj{Filter: q.Device().FilterString()}},
	} {
		b.Run(c.name, func(b *testing.B) {
			d, err := a.USMInterface()
			if err != nil {
				b.Fatal(err)
			}
			d.SyclObj = c.obj
			wrap := func() {
				w, err := FromUSMInterface(rt, &d, release)
				if err != nil {
					b.Fatal(err)
				}
				w.Release()
			}
			b.ReportAllocs()
			for b.Loop() {
				wrap()
			}
			b.StopTimer()
			lo, hi := a.Pointer(), pointerAt(addressOf(a)+uintptr(a.NBytes()))
			var made []*Array
			ns := least(func() {
				for _, w := range made {
					w.Release()
				}
				made = made[:0]
			}, func() { sycltest.CheckInC(q.Context(), lo, hi, batch) }, times(sycltest.EmptyCall), times(func() {
				w, err := FromUSMInterface(rt, &d, release)
				if err != nil {
					b.Fatal(err)
				}
				made = append(made, w)
			}))
			base, alone := ns[0]+3*ns[1], ns[2]
			b.ReportMetric(alone/base, "ratio")
			b.ReportMetric(alone, "wrap-ns")
			b.ReportMetric(base, "C+3calls-ns")
		})
	}
}

// BenchmarkDLPack exports and releases, and imports and releases, in empty cgo
// calls.
func BenchmarkDLPack(b *testing.B) {
	rt, q := testsycl.Need(b)
	memmgr.RecordStacks(0)
	defer memmgr.RecordStacks(16)
	a, err := Zeros(testsycl.USM(b, q, syclobj.USMShared), Float32, []int{480, 640})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Release()
	export := func() dlpack.Tensor {
		t, err := a.DLPack()
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	b.Run("export", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			export().Release()
		}
		b.StopTimer()
		ns := least(nil, times(sycltest.EmptyCall), times(func() { export().Release() }))
		b.ReportMetric(ns[1]/ns[0], "calls")
	})
	b.Run("export-import", func(b *testing.B) {
		b.ReportAllocs()
		both := func() {
			w, err := FromDLPack(rt, export())
			if err != nil {
				b.Fatal(err)
			}
			w.Release()
		}
		for b.Loop() {
			both()
		}
		b.StopTimer()
		lo, hi := a.Pointer(), pointerAt(addressOf(a)+uintptr(a.NBytes()))
		ns := least(nil, times(sycltest.EmptyCall), func() { sycltest.ImportInC(0, lo, hi, batch) },
			times(func() { export().Release() }), times(both))
		b.ReportMetric((ns[3]-ns[2]-ns[1])/ns[0], "import-calls-beside-checks")
	})
}

// BenchmarkInterfaceOut builds the dictionary.
func BenchmarkInterfaceOut(b *testing.B) {
	_, q := testsycl.Need(b)
	a, err := Zeros(testsycl.USM(b, q, syclobj.USMShared), Float32, []int{480, 640})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Release()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.USMInterface(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkViews makes views.
func BenchmarkViews(b *testing.B) {
	a, err := Zeros(memmgr.Host(), Float32, []int{480, 640})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Release()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Index(IndexRange(1, 100), IndexAt(3)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCopyStrided transposes on the host, in bytes per second.
func BenchmarkCopyStrided(b *testing.B) {
	a, err := Zeros(memmgr.Host(), Float32, []int{512, 512})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Release()
	t, err := a.Transpose()
	if err != nil {
		b.Fatal(err)
	}
	c, err := t.Copy(memmgr.Host())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Release()
	b.SetBytes(int64(a.NBytes()))
	for b.Loop() {
		if err := c.CopyFrom(t); err != nil {
			b.Fatal(err)
		}
	}
}
