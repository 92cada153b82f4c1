//go:build linux && cgo

package dlpack_test

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

func export(t *testing.T, v dlpack.View, flags dlpack.Flags) dlpack.Tensor {
	t.Helper()
	x := testenv.Must(exportView(v, flags, true, dlpack.Owner{}))(t)
	t.Cleanup(x.Release)
	return x
}

// requirePanicIs requires a panic with an error of this package that matches want.
func requirePanicIs(t *testing.T, want error, misuse func()) {
	t.Helper()
	defer func() {
		t.Helper()
		err, _ := recover().(error)
		var typed *dlpack.OpError
		require.ErrorAs(t, err, &typed)
		require.ErrorIs(t, err, want)
		require.Error(t, typed.Err)
	}()
	misuse()
}

func TestSlice(t *testing.T) {
	p := memory(t, 64)
	x := export(t, f32(p, dlpack.CPU, []int64{2, 3}, nil), 0)
	s := testenv.Must(dlpack.Slice[float32](x))(t)
	require.Len(t, s, 6)
	require.Equal(t, p, unsafe.Pointer(&s[0]), "no copy")
	s[5] = 2.5
	require.Equal(t, float32(2.5), *(*float32)(unsafe.Add(p, 20)))
	require.Empty(t, testenv.Must(dlpack.Slice[float32](export(t, f32(p, dlpack.CPU, []int64{0}, nil), 0)))(t))

	_, err := dlpack.Slice[float64](x)
	require.ErrorIs(t, err, dlpack.ErrDataType)
	require.ErrorContains(t, err, "float32, not float64: ask for float32")
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Slice[float32](export(t, f32(p, dlpack.CPU, []int64{2, 3}, []int64{1, 2}), 0))), dlpack.ErrLayout)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Slice[float32](export(t, f32(p, dlpack.OneAPI(0), []int64{2}, nil), 0))), dlpack.ErrDevice)
	readOnly := export(t, f32(p, dlpack.CPU, []int64{6}, nil), dlpack.ReadOnly)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Slice[float32](readOnly)), dlpack.ErrReadOnly)
	s = testenv.Must(dlpack.ReadOnlySlice[float32](readOnly))(t)
	require.Equal(t, float32(2.5), s[5])
}

func TestSubByteSlice(t *testing.T) {
	p := memory(t, 16)
	v := dlpack.View{Data: p, Device: dlpack.CPU, DataType: dlpack.Float4E2M1FN, Shape: []int64{3}}
	_, err := dlpack.Slice[dlpack.F4E2M1FN](export(t, v, 0))
	require.ErrorIs(t, err, dlpack.ErrLayout)
	require.ErrorContains(t, err, "packed")
	require.Len(t, testenv.Must(dlpack.Slice[dlpack.F4E2M1FN](export(t, v, dlpack.SubBytePadded)))(t), 3)

	copy(unsafe.Slice((*byte)(p), 2), []byte{0x21, 0x0f})
	raw := testenv.Must(dlpack.Bytes(export(t, v, 0)))(t)
	require.Equal(t, []byte{0x21, 0x0f}, raw)
	values := make([]byte, 3)
	require.NoError(t, dlpack.UnpackBits(values, raw, 0, 4))
	require.Equal(t, []byte{1, 2, 15}, values)
	require.Equal(t, float32(0.5), dlpack.F4E2M1FN(values[0]).Float32())
	require.Equal(t, float32(-6), dlpack.F4E2M1FN(values[2]).Float32())
}

func TestBytes(t *testing.T) {
	p := memory(t, 64)
	require.Len(t, testenv.Must(dlpack.Bytes(export(t, f32(p, dlpack.CPU, []int64{2, 3}, []int64{1, 2}), 0)))(t), 24)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Bytes(export(t, f32(p, dlpack.CPU, []int64{2, 3}, []int64{4, 1}), 0))), dlpack.ErrLayout)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Bytes(export(t, f32(p, dlpack.OneAPI(0), []int64{2}, nil), 0))), dlpack.ErrDevice)
}

func TestElements(t *testing.T) {
	p := memory(t, 96)
	s := unsafe.Slice((*int32)(p), 24)
	for i := range s {
		s[i] = int32(i)
	}
	v := dlpack.View{Data: unsafe.Add(p, 4*5), Device: dlpack.CPU, DataType: dlpack.Int32,
		Shape: []int64{2, 3}, Strides: []int64{6, -2}}
	e := testenv.Must(dlpack.Elements[int32](export(t, v, 0)))(t)
	require.Equal(t, []int32{5, 3, 1, 11, 9, 7}, slices.Collect(e.All()))
	require.Equal(t, int32(9), e.At(1, 1))
	e.Set(-1, 1, 2)
	require.Equal(t, int32(-1), s[7])
	for range e.All() {
		break
	}
	for _, bad := range [][]int64{{}, {1}, {2, 0}, {0, -1}, {0, 3}, {0, 0, 0}} {
		requirePanicIs(t, dlpack.ErrIndex, func() { e.At(bad...) })
	}
	zero := testenv.Must(dlpack.Elements[int32](export(t, dlpack.View{Data: p, Device: dlpack.CPU, DataType: dlpack.Int32}, 0)))(t)
	require.Equal(t, []int32{0}, slices.Collect(zero.All()))
	require.Equal(t, int32(0), zero.At())
	none := testenv.Must(dlpack.Elements[int32](export(t, dlpack.View{Device: dlpack.CPU, DataType: dlpack.Int32, Shape: []int64{2, 0}}, 0)))(t)
	require.Empty(t, slices.Collect(none.All()))
	var nothing dlpack.Strided[int32]
	requirePanicIs(t, dlpack.ErrIndex, func() { nothing.At() })
	require.Empty(t, slices.Collect(nothing.All()))
	readOnly := testenv.Must(dlpack.Elements[int32](export(t, v, dlpack.ReadOnly)))(t)
	require.Equal(t, int32(5), readOnly.At(0, 0))
	requirePanicIs(t, dlpack.ErrReadOnly, func() { readOnly.Set(1, 0, 0) })
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Elements[uint32](export(t, v, 0))), dlpack.ErrDataType)
}

// TestSliceOfNothing: the address of an empty tensor may be invalid, so it must not become a Go pointer.
func TestSliceOfNothing(t *testing.T) {
	p := memory(t, 16)
	tensor := testenv.Must(dlpack.Import(cpeer.Produce(fields(f32(unsafe.Add(p, 1), dlpack.CPU, []int64{0, 2}, nil))), true))(t)
	defer tensor.Release()
	s := testenv.Must(dlpack.Slice[float32](tensor))(t)
	require.Empty(t, s)
	require.Nil(t, unsafe.SliceData(s))
	raw := testenv.Must(dlpack.Bytes(tensor))(t)
	require.Empty(t, raw)
	require.Nil(t, unsafe.SliceData(raw))
	e := testenv.Must(dlpack.Elements[float32](tensor))(t)
	require.Empty(t, slices.Collect(e.All()))
}
