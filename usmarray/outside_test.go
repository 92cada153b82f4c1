package usmarray

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// randomLayout returns a layout inside n positions, with negative, zero and large steps. Elements may overlap.
func randomLayout(r *rand.Rand, n int) Layout {
	for {
		shape, strides := make([]int, r.IntN(4)), []int(nil)
		lo, hi := 0, 0
		for i := range shape {
			shape[i] = 1 + r.IntN(4)
			s := r.IntN(9) - 4
			if r.IntN(3) == 0 { // as in a contiguous layout
				s = max(1, hi-lo+1)
			}
			strides = append(strides, s)
			if reach := (shape[i] - 1) * s; reach < 0 {
				lo += reach
			} else {
				hi += reach
			}
		}
		if hi-lo >= n {
			continue
		}
		l, err := NewLayout(shape, strides, -lo+r.IntN(n-(hi-lo)))
		if err == nil {
			return l
		}
	}
}

// touched returns the bits of a buffer that belong to elements of the layout.
func touched(l *Layout, bits, n int) []byte {
	mask := make([]byte, n)
	w := planWalk(l, l)
	rows, step, _ := w.row()
	_ = w.each(func(p, _ int) error {
		for i := range rows {
			for b := range bits {
				at := (p+i*step)*bits + b
				mask[at/8] |= 1 << (at % 8)
			}
		}
		return nil
	})
	return mask
}

// TestWritesChangeOnlyElements: no way of writing changes a bit outside the elements of the view.
func TestWritesChangeOnlyElements(t *testing.T) {
	const size, rounds = 512, 100
	_, q := testsycl.Need(t)
	r := rand.New(rand.NewPCG(2, uint64(size)))
	types := []DataType{Uint8, Int16, Float32, Float64, Complex128, Bool, dlpack.Int4, dlpack.Uint2, dlpack.Float6E2M3FN}
	sources := map[string]memmgr.Resource{"plain": memmgr.Host()}
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared} {
		sources[kind.String()] = testsycl.USM(t, q, kind)
	}
	writes := map[string]func(a, src *Array) error{
		"CopyFrom": func(a, src *Array) error {
			same, err := src.AsType(memmgr.Host(), a.DataType())
			if err != nil {
				return err
			}
			defer same.Release()
			return a.CopyFrom(same)
		},
		"ConvertFrom": (*Array).ConvertFrom,
		"Fill":        func(a, _ *Array) error { return a.Fill(1) },
		"SetAt":       func(a, _ *Array) error { return a.SetAt(1, make([]int, a.NDim())...) },
		"ConvertFrom one element": func(a, src *Array) error {
			one, err := src.Index(make([]Index, 0)...)
			if err != nil {
				return err
			}
			if one.Size() == 0 {
				return nil
			}
			return a.ConvertFrom(one)
		},
	}
	for place, mem := range sources {
		for other, from := range sources {
			for name, write := range writes {
				t.Run(fmt.Sprintf("%s from %s by %s", place, other, name), func(t *testing.T) {
					for range rounds {
						dt := types[r.IntN(len(types))]
						padded := r.IntN(2) == 0
						bits := dt.StorageBits(padded)
						l := randomLayout(r, size*8/bits)
						checkWrite(t, mem, from, dt, padded, l, bits, size, r, write)
					}
				})
			}
		}
	}
}

// checkWrite writes to a view of memory with random bytes and compares the bits outside of its elements.
func checkWrite(t *testing.T, mem, from memmgr.Resource, dt DataType, padded bool, l Layout, bits, size int, r *rand.Rand, write func(a, src *Array) error) {
	t.Helper()
	before := make([]byte, size)
	for i := range before {
		before[i] = byte(r.Uint32())
	}
	whole := testenv.Held(New(mem, Uint8, []int{size}))(t)
	require.NoError(t, CopyFromSlice(whole, before))
	var opts []Option
	if padded {
		opts = append(opts, Padded())
	}
	a := testenv.Must(WrapBuffer(whole.Buffer(), dt, l, opts...))(t)
	src := testenv.Held(Full(from, Float32, l.Shape(), 1))(t)
	if err := write(a, src); err != nil {
		t.Fatalf("%v %v %v: %v", dt, l.Shape(), l.Strides(), err)
	}
	after := testenv.Must(ToSlice[byte](whole))(t)
	mask := touched(&l, bits, size)
	for i := range after {
		if (after[i]^before[i])&^mask[i] != 0 {
			t.Fatalf("%s (padded %v), shape %v, strides %v, offset %d: byte %d changed from %#x to %#x, of which %#x belongs to elements",
				dt, padded, l.Shape(), l.Strides(), l.Offset(), i, before[i], after[i], mask[i])
		}
	}
}

// TestSliceWritesChangeOnlyElements is the same for Go slices, whose type is that of the elements.
func TestSliceWritesChangeOnlyElements(t *testing.T) {
	_, q := testsycl.Need(t)
	r := rand.New(rand.NewPCG(3, 1))
	for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared} {
		mem := testsycl.USM(t, q, kind)
		for range 300 {
			l := randomLayout(r, 128)
			checkWrite(t, mem, memmgr.Host(), Int32, false, l, 32, 512, r, func(a, _ *Array) error {
				return CopyFromSlice(a, make([]int32, a.Size()))
			})
		}
	}
}
