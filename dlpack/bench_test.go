//go:build linux && cgo

package dlpack_test

import (
	"math"
	"testing"
	"time"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
)

// compare runs op as the benchmark, then alternates it with empty cgo calls, and reports the ratio of the
// best rounds, so that a busy machine affects both.
func compare(b *testing.B, op func()) {
	b.ReportAllocs()
	for b.Loop() {
		op()
	}
	const rounds, calls = 40, 5000
	best := func(old float64, f func()) float64 {
		start := time.Now()
		for range calls {
			f()
		}
		return min(old, float64(time.Since(start).Nanoseconds())/calls)
	}
	mine, empty := math.Inf(1), math.Inf(1)
	for range rounds {
		mine = best(mine, op)
		empty = best(empty, cpeer.Empty)
	}
	b.ReportMetric(mine/empty, "cgo-calls/op")
}

// BenchmarkEmptyCall is the reference for the other benchmarks.
func BenchmarkEmptyCall(b *testing.B) {
	for b.Loop() {
		cpeer.Empty()
	}
}

// BenchmarkExportRelease builds a versioned tensor with an owner and deletes
// it; the bound is 4 empty cgo calls and no Go allocation.
func BenchmarkExportRelease(b *testing.B) {
	memory := cpeer.Alloc(4 * 480 * 640)
	defer cpeer.Free(memory)
	counter := cpeer.NewOwner()
	defer counter.Free()
	owner := counter.DLPack()
	view := dlpack.View{Data: memory, Device: dlpack.CPU, DataType: dlpack.Float32,
		Shape: []int64{480, 640}, Strides: []int64{640, 1}}
	compare(b, func() {
		t, err := dlpack.Export(&view, 0, true, owner)
		if err != nil {
			b.Fatal(err)
		}
		t.Release()
	})
}

// BenchmarkImportRelease takes over a tensor whose deleter only counts, so that
// the producer's own work is left out, checks it, and deletes it; the bound is
// 4 empty cgo calls and no Go allocation.
func BenchmarkImportRelease(b *testing.B) {
	memory := cpeer.Alloc(4 * 480 * 640)
	defer cpeer.Free(memory)
	managed := cpeer.Produce(cpeer.Fields{Version: dlpack.CurrentVersion, Data: memory, Device: dlpack.CPU,
		NDim: 2, DataType: dlpack.Float32, Shape: []int64{480, 640}, Strides: []int64{640, 1}, Keep: true})
	defer cpeer.FreeUndeleted(managed, true)
	compare(b, func() {
		t, err := dlpack.Import(managed, true)
		if err != nil {
			b.Fatal(err)
		}
		t.Release()
	})
}

// BenchmarkCheck measures the check of a view.
func BenchmarkCheck(b *testing.B) {
	memory := cpeer.Alloc(4 * 480 * 640)
	defer cpeer.Free(memory)
	view := dlpack.View{Data: memory, Device: dlpack.CPU, DataType: dlpack.Float32,
		Shape: []int64{480, 640}, Strides: []int64{640, 1}}
	compare(b, func() {
		if _, err := dlpack.Check(&view, 0); err != nil {
			b.Fatal(err)
		}
	})
}
