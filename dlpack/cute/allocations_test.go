package cute

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
)

// convertAllocs is the bound on the heap allocations of a conversion and a mark.
const convertAllocs = 4

func wideView(rank int) dlpack.View {
	v := dlpack.View{DataType: float32Type, Device: dlpack.Device{Type: 1}, Shape: make([]int64, rank)}
	for i := range v.Shape {
		v.Shape[i] = int64(1 + i%2)
	}
	return v
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
	rank3 := dlpack.View{
		Data: unsafe.Pointer(new([32]float32)), Shape: []int64{30, 20, 32}, Strides: []int64{640, 32, 1},
		DataType: float32Type, Device: dlpack.Device{Type: 1},
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
