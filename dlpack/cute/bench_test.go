package cute

import (
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
)

// The time bounds of this package. Each benchmark reports its time as a fraction of its bound.
const (
	convertBound  = 400 * time.Nanosecond
	convertAllocs = 4
	lookUpBound   = 50 * time.Nanosecond
)

var rank3 = dlpack.View{
	Data: unsafe.Pointer(&benchMemory[0]), Shape: []int64{30, 20, 32}, Strides: []int64{640, 32, 1},
	DataType: float32Type, Device: dlpack.Device{Type: 1},
}

var benchMemory [32]float32

func reportRatio(b *testing.B, bound time.Duration) {
	perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(perOp/float64(bound.Nanoseconds()), "of-bound")
}

func wideView(rank int) dlpack.View {
	v := dlpack.View{DataType: float32Type, Device: dlpack.Device{Type: 1}, Shape: make([]int64, rank)}
	for i := range v.Shape {
		v.Shape[i] = int64(1 + i%2)
	}
	return v
}

func BenchmarkConvertAndMarkLayout(b *testing.B) {
	for _, rank := range []int{3, 8, 64} {
		v := rank3
		if rank != 3 {
			v = wideView(rank)
		}
		b.Run(fmt.Sprintf("rank=%d", rank), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t, err := NewSpec(v, Options{Leading: LeadingSkipSizeOne})
				if err == nil {
					err = t.MarkLayoutDynamic(rank - 1)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			reportRatio(b, convertBound)
		})
	}
}

func BenchmarkConvertAndMarkCompact(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		t, err := NewSpec(rank3, Options{})
		if err == nil {
			err = t.MarkCompactShapeDynamic(0, nil, 2)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	reportRatio(b, convertBound)
}

// BenchmarkKeyAndLookUp finds a kernel among 64 in a map.
func BenchmarkKeyAndLookUp(b *testing.B) {
	kernels := map[Key]int{}
	var s Spec
	for rank := range 64 {
		v := rank3
		v.Shape = []int64{int64(rank + 1), 20, 32}
		var err error
		if s, err = NewSpec(v, Options{}); err != nil {
			b.Fatal(err)
		}
		kernels[s.Key()] = rank
	}
	b.ReportAllocs()
	for b.Loop() {
		if kernels[s.Key()] != 63 {
			b.Fatal("another kernel")
		}
	}
	reportRatio(b, lookUpBound)
}

func BenchmarkTensorString(b *testing.B) {
	t, err := NewSpec(rank3, Options{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_ = t.TensorString(rank3.Data)
	}
}

// TestAllocations checks the bound on heap allocations, which does not depend on the machine.
func TestAllocations(t *testing.T) {
	for _, rank := range []int{0, 3, 8, 9, 64} {
		v := wideView(rank)
		lead := Deduce
		if rank > 0 {
			lead = rank - 1
		}
		n := testing.AllocsPerRun(100, func() {
			c, err := NewSpec(v, Options{})
			if err == nil {
				err = c.MarkLayoutDynamic(lead)
			}
			if err != nil {
				panic(err)
			}
		})
		require.LessOrEqual(t, n, float64(convertAllocs), "conversion and mark of rank %d", rank)
	}
	n := testing.AllocsPerRun(100, func() {
		s, err := NewSpec(rank3, Options{})
		if err == nil {
			err = s.MarkCompactShapeDynamic(1, nil, 4)
		}
		if err != nil {
			panic(err)
		}
		_ = s.Key()
	})
	require.Zero(t, n, "a Spec of small rank needs no heap memory")
}
