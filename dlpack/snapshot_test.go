//go:build linux && cgo

package dlpack_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestImportedTensorStands: changes of the producer's struct after the import have no effect.
func TestImportedTensorStands(t *testing.T) {
	p := memory(t, 64)
	for _, versioned := range []bool{true, false} {
		f := fields(f32(p, dlpack.CPU, []int64{2, 3}, []int64{3, 1}))
		f.Legacy = !versioned
		managed := cpeer.Produce(f)
		x := testenv.Must(dlpack.Import(managed, versioned))(t)
		cpeer.Overwrite(managed, versioned, cpeer.Fields{NDim: 60, ByteOffset: 1 << 40, DataType: dlpack.Float64,
			Shape: []int64{1 << 40, 1 << 20}, Strides: []int64{1 << 50, -7}})

		require.Equal(t, "float32[2,3] on kDLCPU:0", x.String())
		require.Equal(t, 2, x.NDim())
		require.Equal(t, []int64{2, 3}, x.Shape())
		require.Equal(t, []int64{3, 1}, x.Strides())
		require.Equal(t, dlpack.Float32, x.DataType())
		data, offset := x.RawData()
		require.Equal(t, p, data)
		require.Zero(t, offset)
		require.Len(t, testenv.Must(dlpack.Slice[float32](x))(t), 6)
		x.Release()
	}
}

// TestImportWhileProducerWrites: while a thread of the producer writes to the tensor, an import returns an
// error or a consistent tensor. The writer switches between one extent of 1 and 64 extents of 2, which
// exceed any memory.
func TestImportWhileProducerWrites(t *testing.T) {
	p := memory(t, 64)
	f := fields(f32(p, dlpack.CPU, slices.Repeat([]int64{1}, 64), slices.Repeat([]int64{1}, 64)))
	f.Keep = true
	managed := cpeer.Produce(f)
	defer cpeer.FreeUndeleted(managed, true)
	cpeer.Overwrite(managed, true, cpeer.Fields{NDim: 1, Data: p, DataType: dlpack.Float32})
	stop := cpeer.WriteOn(managed, true)
	require.NotNil(t, stop)
	defer stop()
	for range 20000 {
		x, err := dlpack.Import(managed, true)
		if err != nil {
			require.ErrorContains(t, err, "dlpack: Import: ")
			continue
		}
		shape, span, bits := x.Shape(), x.Span(), int64(x.DataType().Bits)
		count := int64(1)
		for _, n := range shape {
			count *= n
		}
		require.Len(t, x.Strides(), len(shape))
		require.Equal(t, count, span.Count)
		require.Equal(t, bits, int64(span.ItemBits))
		x.Release()
	}
}

// TestImportManyDimensions: dimensions beyond the room of a slot are allocated, and freed with the tensor.
func TestImportManyDimensions(t *testing.T) {
	p := memory(t, 64)
	for _, ndim := range []int{0, 5, 6, 7, 64} {
		shape := slices.Repeat([]int64{1}, ndim)
		if ndim > 0 {
			shape[ndim-1] = 4
		}
		for range 3 { // the slot is reused
			x := testenv.Must(dlpack.Import(cpeer.Produce(fields(f32(p, dlpack.CPU, shape, nil))), true))(t)
			require.Equal(t, ndim, len(x.Shape()))
			require.True(t, slices.Equal(shape, x.Shape()))
			require.Len(t, x.Strides(), ndim)
			if ndim%2 == 0 {
				x.Release()
			} else {
				dlpack.Delete(x.Detach())
			}
		}
	}
}
