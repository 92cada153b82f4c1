//go:build linux && cgo

package dlpack_test

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

func export(t *testing.T, v dlpack.View, flags dlpack.Flags) dlpack.Tensor {
	t.Helper()
	return testenv.Held(exportView(v, flags, true, dlpack.Owner{}))(t)
}

// requirePanicIs requires a panic with an error of this package that matches want.
func requirePanicIs(t *testing.T, want error, misuse func()) {
	t.Helper()
	defer func() {
		t.Helper()
		err, _ := recover().(error)
		typed := testenv.As[*dlpack.OpError](t, err)
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

	testenv.Failed(t, testenv.ErrorOf(dlpack.Slice[float64](x)), dlpack.ErrDataType, "float32, not float64: ask for float32")
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Slice[float32](export(t, f32(p, dlpack.CPU, []int64{2, 3}, []int64{1, 2}), 0))), dlpack.ErrLayout)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Slice[float32](export(t, f32(p, dlpack.OneAPI(0), []int64{2}, nil), 0))), dlpack.ErrDevice)
	readOnly := export(t, f32(p, dlpack.CPU, []int64{6}, nil), dlpack.ReadOnly)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Slice[float32](readOnly)), dlpack.ErrReadOnly)
	s = testenv.Must(dlpack.ReadOnlySlice[float32](readOnly))(t)
	require.Equal(t, float32(2.5), s[5])
}

// TestEncodings: elements without a Go type are read by Bytes, packed ones as stored.
func TestEncodings(t *testing.T) {
	p := memory(t, 16)
	v := dlpack.View{Data: p, Device: dlpack.CPU, DataType: dlpack.Float4E2M1FN, Shape: []int64{3}}
	copy(unsafe.Slice((*byte)(p), 3), []byte{0x21, 0x0f, 0x07})
	for flags, want := range map[dlpack.Flags][]byte{0: {0x21, 0x0f}, dlpack.SubBytePadded: {0x21, 0x0f, 0x07}} {
		x := export(t, v, flags)
		testenv.Failed(t, testenv.ErrorOf(dlpack.Slice[uint8](x)), dlpack.ErrDataType, "read the encodings with Bytes")
		require.Equal(t, want, testenv.Must(dlpack.Bytes(x))(t))
	}
}

func TestBytes(t *testing.T) {
	p := memory(t, 64)
	require.Len(t, testenv.Must(dlpack.Bytes(export(t, f32(p, dlpack.CPU, []int64{2, 3}, []int64{1, 2}), 0)))(t), 24)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Bytes(export(t, f32(p, dlpack.CPU, []int64{2, 3}, []int64{4, 1}), 0))), dlpack.ErrLayout)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Bytes(export(t, f32(p, dlpack.OneAPI(0), []int64{2}, nil), 0))), dlpack.ErrDevice)
}

// TestSliceOfNothing: the address of an empty tensor may be invalid, so it must not become a Go pointer.
func TestSliceOfNothing(t *testing.T) {
	p := memory(t, 16)
	tensor := testenv.Held(dlpack.Import(cpeer.Produce(fields(f32(unsafe.Add(p, 1), dlpack.CPU, []int64{0, 2}, nil))), true))(t)
	s := testenv.Must(dlpack.Slice[float32](tensor))(t)
	require.Empty(t, s)
	require.Nil(t, unsafe.SliceData(s))
	raw := testenv.Must(dlpack.Bytes(tensor))(t)
	require.Empty(t, raw)
	require.Nil(t, unsafe.SliceData(raw))
}
