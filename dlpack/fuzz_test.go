//go:build linux && cgo

package dlpack_test

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// model is the expected result of usmb_dl_check, computed slowly with unbounded numbers: an error or a
// span.
type model struct {
	err          error
	count        int64
	lo, hi       *big.Int // bytes
	cOrder, fOrd bool
}

var (
	maxInt64 = big.NewInt(math.MaxInt64)
	minInt64 = big.NewInt(math.MinInt64)
)

func fits(x *big.Int) bool { return x.Cmp(maxInt64) <= 0 && x.Cmp(minInt64) >= 0 }

func check(v dlpack.View, flags dlpack.Flags) model {
	if v.Device.Type < 1 || v.Device.ID < 0 {
		return model{err: dlpack.ErrDevice}
	}
	if v.DataType.Check() != nil {
		return model{err: dlpack.ErrDataType}
	}
	bits := big.NewInt(int64(v.DataType.StorageBits(flags&dlpack.SubBytePadded != 0)))
	product, empty := big.NewInt(1), false
	for _, n := range v.Shape {
		if n < 0 {
			return model{err: dlpack.ErrShape}
		}
		if n == 0 {
			empty = true
			continue
		}
		if product.Mul(product, big.NewInt(n)); !fits(product) {
			return model{err: dlpack.ErrOverflow}
		}
	}
	if !fits(new(big.Int).Mul(product, bits)) {
		return model{err: dlpack.ErrOverflow}
	}
	if empty {
		return model{lo: new(big.Int), hi: new(big.Int), cOrder: true, fOrd: true}
	}
	return span(v, bits, product.Int64())
}

// span computes the part of strides and addresses.
func span(v dlpack.View, bits *big.Int, count int64) model {
	strides := v.Strides
	if strides == nil {
		strides = make([]int64, len(v.Shape))
		step := int64(1)
		for i := len(v.Shape) - 1; i >= 0; i-- {
			strides[i] = step
			step *= v.Shape[i]
		}
	}
	lo, hi := new(big.Int), new(big.Int)
	for i, n := range v.Shape {
		reach := new(big.Int).Mul(big.NewInt(strides[i]), big.NewInt(n-1))
		if reach.Sign() < 0 {
			lo.Add(lo, reach)
		} else {
			hi.Add(hi, reach)
		}
	}
	end := new(big.Int).Add(hi, big.NewInt(1))
	loBits, hiBits := new(big.Int).Mul(lo, bits), end.Mul(end, bits)
	if !fits(loBits) || !fits(hiBits) {
		return model{err: dlpack.ErrStrides}
	}
	eight := big.NewInt(8)
	m := model{count: count, cOrder: contiguous(v.Shape, strides, true), fOrd: contiguous(v.Shape, strides, false)}
	m.lo = new(big.Int).Div(loBits, eight) // Euclidean: rounds down
	m.hi = new(big.Int).Div(new(big.Int).Add(hiBits, big.NewInt(7)), eight)
	m.err = address(v, m)
	return m
}

func contiguous(shape, strides []int64, rowMajor bool) bool {
	step := big.NewInt(1)
	for k := range shape {
		i := k
		if rowMajor {
			i = len(shape) - 1 - k
		}
		if shape[i] != 1 && step.Cmp(big.NewInt(strides[i])) != 0 {
			return false
		}
		step.Mul(step, big.NewInt(shape[i]))
	}
	return true
}

func address(v dlpack.View, m model) error {
	if v.Data == nil {
		return dlpack.ErrNull
	}
	item := uint64(max(1, v.DataType.BitSize()/8))
	if v.ByteOffset%item != 0 {
		return dlpack.ErrAlignment
	}
	start := new(big.Int).SetUint64(v.ByteOffset)
	top := new(big.Int).SetUint64(math.MaxInt64)
	if !v.Device.Type.IsHandle() {
		start.Add(start, new(big.Int).SetUint64(uint64(uintptr(v.Data))))
	}
	if start.Cmp(top) > 0 {
		return dlpack.ErrOverflow
	}
	if start.Uint64()%item != 0 {
		return dlpack.ErrAlignment
	}
	if new(big.Int).Add(start, m.lo).Sign() < 0 || new(big.Int).Add(start, m.hi).Cmp(top) > 0 {
		return dlpack.ErrStrides
	}
	return nil
}

// requireModel compares the check with the model, and the results of export and import of the same view.
func requireModel(t *testing.T, v dlpack.View, flags dlpack.Flags) {
	t.Helper()
	want := check(v, flags)
	got, err := checkView(v, flags)
	require.ErrorIs(t, err, want.err, "%+v", v)
	f := fields(v)
	f.Flags = flags
	managed := cpeer.Produce(f)
	imported, importErr := dlpack.Import(managed, true)
	require.ErrorIs(t, importErr, want.err)
	message, shape, strides, count, lo, hi := cpeer.Snapshot(managed, true, false)
	require.Equal(t, want.err == nil, message == "")
	if want.err != nil {
		dlpack.Delete(managed, true)
		require.Error(t, testenv.ErrorOf(exportView(v, flags&7, true, dlpack.Owner{})))
		return
	}
	defer imported.Release()
	require.Equal(t, got, imported.Span())
	require.Equal(t, []int64{got.Count, got.Lo, got.Hi}, []int64{count, lo, hi})
	require.True(t, slices.Equal(imported.Shape(), shape))
	require.True(t, slices.Equal(imported.Strides(), strides))
	require.Equal(t, want.count, got.Count)
	require.Zero(t, want.lo.Cmp(big.NewInt(got.Lo)), "%v, not %v", got.Lo, want.lo)
	require.Zero(t, want.hi.Cmp(big.NewInt(got.Hi)), "%v, not %v", got.Hi, want.hi)
	require.Equal(t, want.cOrder, got.CContiguous())
	require.Equal(t, want.fOrd, got.FContiguous())
	requireSameOut(t, v, flags&7, got)
}

// requireSameOut exports a valid view and compares the consumer's first element and span.
func requireSameOut(t *testing.T, v dlpack.View, flags dlpack.Flags, want dlpack.Span) {
	t.Helper()
	out, err := dlpack.Export(&v, flags, true, dlpack.Owner{})
	if err != nil {
		ok := !v.Device.Type.Known() || v.Device.Type == dlpack.DeviceOneAPI && want.Count == 0 && want.First == nil && v.ByteOffset == 0
		require.True(t, ok, "%v of %+v", err, v)
		return
	}
	back := testenv.Held(dlpack.Import(out.Detach()))(t)
	got := back.Span()
	if want.Count == 0 {
		got.First = want.First // for size 0 it may be NULL
	}
	require.Equal(t, want, got)
	require.Len(t, back.Shape(), len(v.Shape))
	for i := range v.Shape {
		require.Equal(t, v.Shape[i], back.Shape()[i])
	}
}

// words reads the fuzzer's bytes as small or extreme numbers.
type words struct{ left []byte }

func (w *words) byte() byte {
	if len(w.left) == 0 {
		return 0
	}
	b := w.left[0]
	w.left = w.left[1:]
	return b
}

func (w *words) int64() int64 {
	switch kind := w.byte(); {
	case kind < 160:
		return int64(kind) - 80
	case kind < 200:
		return 1<<(kind%64) - int64(w.byte()%3)
	case kind < 230:
		return -(1 << (kind % 64)) + int64(w.byte()%3)
	}
	var raw [8]byte
	for i := range raw {
		raw[i] = w.byte()
	}
	return int64(binary.LittleEndian.Uint64(raw[:]))
}

// FuzzCheck feeds views of any kind to the check and compares with the model.
func FuzzCheck(f *testing.F) {
	f.Add(uint8(2), uint8(32), uint8(1), uint8(1), uint64(0), uint8(0), true, []byte{2, 82, 83, 83, 81})
	f.Add(uint8(17), uint8(4), uint8(1), uint8(14), uint64(3), uint8(0), true, []byte{3, 82, 83, 84, 10, 20, 200, 7})
	f.Add(uint8(16), uint8(6), uint8(1), uint8(14), uint64(0), uint8(4), true, []byte{1, 90, 70})
	f.Add(uint8(0), uint8(64), uint8(1), uint8(1), uint64(8), uint8(1), false, []byte{4, 82, 81, 81, 190, 0})
	f.Add(uint8(5), uint8(128), uint8(1), uint8(4), uint64(16), uint8(0), true, []byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 127})
	f.Add(uint8(6), uint8(8), uint8(1), uint8(1), uint64(math.MaxUint64), uint8(0), false, []byte{0})
	f.Add(uint8(2), uint8(64), uint8(2), uint8(0), uint64(0), uint8(0), false, []byte{2, 80, 80})
	f.Add(uint8(2), uint8(16), uint8(1), uint8(1), uint64(0), uint8(0), true, []byte{2, 80, 82, 220, 200})
	block := cpeer.Alloc(64)
	f.Cleanup(func() { cpeer.Free(block) })
	f.Fuzz(func(t *testing.T, code, bits, lanes, device uint8, offset uint64, flags uint8, strided bool, raw []byte) {
		w := &words{raw}
		ndim := int(w.byte() % 66)
		v := dlpack.View{Data: unsafe.Add(block, int(offset>>8)%17), ByteOffset: offset,
			Device:   dlpack.Device{Type: dlpack.DeviceType(device % 20), ID: int32(int8(lanes))},
			DataType: dlpack.DataType{Code: dlpack.Code(code % 20), Bits: bits, Lanes: uint16(lanes % 3)},
			Shape:    []int64{}}
		if offset%11 == 10 {
			v.Data = nil
		}
		for range ndim {
			v.Shape = append(v.Shape, w.int64())
		}
		if strided && ndim > 0 {
			for range ndim {
				v.Strides = append(v.Strides, w.int64())
			}
		}
		if ndim > dlpack.MaxNDim {
			require.ErrorIs(t, testenv.ErrorOf(checkView(v, 0)), dlpack.ErrShape)
			return
		}
		requireModel(t, v, dlpack.Flags(flags))
	})
}

// TestSpanByWalking: for all small layouts the span equals that of the visited elements.
func TestSpanByWalking(t *testing.T) {
	p := memory(t, 64)
	values := []int64{-2, -1, 0, 1, 2, 3}
	for _, bits := range []dlpack.DataType{dlpack.Float4E2M1FN, dlpack.Float6E2M3FN, dlpack.Int16} {
		for _, a := range values {
			for _, b := range values {
				for _, shape := range [][]int64{{1, 1}, {2, 3}, {3, 1}} {
					v := dlpack.View{Data: p, Device: dlpack.CPU, DataType: bits, Shape: shape, Strides: []int64{a, b}}
					got := testenv.Must(checkView(v, 0))(t)
					width := int64(bits.BitSize())
					lo, hi := int64(0), int64(0)
					for i := range shape[0] {
						for j := range shape[1] {
							bit := (i*a + j*b) * width
							lo = min(lo, int64(math.Floor(float64(bit)/8)))
							hi = max(hi, int64(math.Ceil(float64(bit+width)/8)))
						}
					}
					require.Equal(t, []int64{lo, hi}, []int64{got.Lo, got.Hi}, "%+v", v)
				}
			}
		}
	}
}
