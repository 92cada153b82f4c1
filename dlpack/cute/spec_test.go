package cute

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

func TestElementTypes(t *testing.T) {
	for _, c := range []struct {
		dt    dlpack.DataType
		name  string
		align int64
	}{
		{dlpack.DataType{Code: 0, Bits: 8, Lanes: 1}, "Int8", 1},
		{dlpack.DataType{Code: 0, Bits: 128, Lanes: 1}, "Int128", 16},
		{dlpack.DataType{Code: 0, Bits: 4, Lanes: 1}, "Int4", 1},
		{dlpack.DataType{Code: 1, Bits: 64, Lanes: 1}, "Uint64", 8},
		{dlpack.DataType{Code: 2, Bits: 16, Lanes: 1}, "Float16", 2},
		{dlpack.DataType{Code: 2, Bits: 32, Lanes: 1}, "Float32", 4},
		{dlpack.DataType{Code: 2, Bits: 64, Lanes: 1}, "Float64", 8},
		{dlpack.DataType{Code: 4, Bits: 16, Lanes: 1}, "BFloat16", 2},
		{dlpack.DataType{Code: 6, Bits: 8, Lanes: 1}, "Boolean", 1},
		{dlpack.DataType{Code: 10, Bits: 8, Lanes: 1}, "Float8E4M3FN", 1},
		{dlpack.DataType{Code: 12, Bits: 8, Lanes: 1}, "Float8E5M2", 1},
		{dlpack.DataType{Code: 14, Bits: 8, Lanes: 1}, "Float8E8M0FNU", 1},
		{dlpack.DataType{Code: 15, Bits: 6, Lanes: 1}, "Float6E2M3FN", 1},
		{dlpack.DataType{Code: 16, Bits: 6, Lanes: 1}, "Float6E3M2FN", 1},
		{dlpack.DataType{Code: 17, Bits: 4, Lanes: 1}, "Float4E2M1FN", 1},
	} {
		s, err := NewSpec(dlpack.View{DataType: c.dt}, Options{})
		require.NoError(t, err, c.name)
		require.Equal(t, c.name, s.ElementType().String())
		require.Equal(t, int(c.dt.Bits), s.ElementType().bits())
		require.Equal(t, c.align, s.align)
	}
}

// TestElementTypeTable checks that each element type has exactly one code and width.
func TestElementTypeTable(t *testing.T) {
	found := map[ElementType]int{}
	for code := range 256 {
		for bits := range 256 {
			dt := dlpack.DataType{Bits: uint8(bits), Lanes: 1}
			dt.Code += dlpack.Code(code)
			e, err := elementTypeOf(dt)
			if err != nil {
				require.ErrorIs(t, err, ErrElementType)
				continue
			}
			found[e]++
			require.Equal(t, bits, e.bits())
		}
	}
	require.Len(t, found, int(elementTypes)-1)
	for e, n := range found {
		require.Equal(t, 1, n, e)
	}
	require.Equal(t, "no element type", ElementType(0).String())
	require.Equal(t, "no element type", elementTypes.String())
	require.Zero(t, elementTypes.bits())
}

func TestRefusedElementTypes(t *testing.T) {
	for name, dt := range map[string]dlpack.DataType{
		"complex":       {Code: 5, Bits: 64, Lanes: 1},
		"opaque handle": {Code: 3, Bits: 64, Lanes: 1},
		"vector":        {Code: 2, Bits: 32, Lanes: 4},
		"no lanes":      {Code: 2, Bits: 32, Lanes: 0},
		"bool of 1 bit": {Code: 6, Bits: 1, Lanes: 1},
		"e4m3fnuz":      {Code: 11, Bits: 8, Lanes: 1},
		"code unknown":  {Code: 200, Bits: 8, Lanes: 1},
	} {
		_, err := NewSpec(dlpack.View{DataType: dt}, Options{})
		require.ErrorIs(t, err, ErrElementType, name)
		require.ErrorContains(t, err, "Float32", "%s: the error names a supported type", name)
	}
}

func TestMemSpace(t *testing.T) {
	for device, want := range map[int32]string{1: "generic", 2: "gmem", 3: "generic", 10: "gmem", 11: "generic", 13: "gmem", 14: "gmem"} {
		v := dlpack.View{DataType: float32Type}
		v.Device.Type += dlpack.DeviceType(device)
		s := testenv.Must(NewSpec(v, Options{}))(t)
		require.Equal(t, want, s.MemSpace().String(), "device type %d", device)
		s = testenv.Must(NewSpec(v, Options{MemSpace: Generic}))(t)
		require.Equal(t, Generic, s.MemSpace(), "the option overrides the device")
	}
	require.Equal(t, "by device", MemSpaceByDevice.String())
}

func TestAlignment(t *testing.T) {
	memory := make([]byte, 256)
	base := unsafe.Pointer(&memory[128-int(uintptr(unsafe.Pointer(&memory[0]))%128)]) // on a multiple of 128
	for _, c := range []struct {
		offset, align int64
		ok            bool
	}{
		{0, 0, true},
		{0, 128, true},
		{4, 0, true},
		{2, 0, false},
		{2, 2, true},
		{4, 16, false},
		{16, 16, true},
		{1, 1, true},
		{0, 3, false},
		{0, -4, false},
		{0, math.MinInt64, false},
	} {
		v := dlpack.View{Data: unsafe.Add(base, c.offset), Shape: []int64{2}, DataType: float32Type}
		s, err := NewSpec(v, Options{AssumedAlign: c.align})
		if !c.ok {
			require.ErrorIs(t, err, ErrAlignment, "%+v", c)
			continue
		}
		require.NoError(t, err, "%+v", c)
		if c.align > 0 {
			require.Equal(t, c.align, s.align)
		}
	}
}

func TestRefusedViews(t *testing.T) {
	for name, c := range map[string]struct {
		v    dlpack.View
		o    Options
		kind error
	}{
		"rank":             {dlpack.View{Shape: make([]int64, 65)}, Options{}, ErrLayout},
		"strides' length":  {dlpack.View{Shape: []int64{2, 3}, Strides: []int64{1}}, Options{}, ErrLayout},
		"strides, no mode": {dlpack.View{Strides: []int64{1}}, Options{}, ErrLayout},
		"negative extent":  {dlpack.View{Shape: []int64{2, -3}}, Options{}, ErrLayout},
		"size overflows":   {dlpack.View{Shape: []int64{1 << 62, 8}}, Options{}, ErrLayout},
		"size overflows with strides": {
			dlpack.View{Shape: []int64{1 << 62, 8}, Strides: []int64{0, 0}}, Options{}, ErrLayout,
		},
		"span overflows": {dlpack.View{Shape: []int64{3, 3}, Strides: []int64{1 << 62, 1}}, Options{}, ErrLayout},
		"span overflows in two steps": {
			dlpack.View{Shape: []int64{2, 2}, Strides: []int64{1 << 62, 1 << 62}}, Options{}, ErrLayout,
		},
		"span overflows downwards": {
			dlpack.View{Shape: []int64{3}, Strides: []int64{math.MinInt64}}, Options{}, ErrLayout,
		},
		"span overflows both ways": {
			dlpack.View{Shape: []int64{2, 2}, Strides: []int64{math.MinInt64, math.MaxInt64}}, Options{}, ErrLayout,
		},
		"stride width": {dlpack.View{}, Options{Strides: 3}, ErrOption},
		"leading rule": {dlpack.View{}, Options{Leading: 2}, ErrOption},
		"memory space": {dlpack.View{}, Options{MemSpace: 3}, ErrOption},
		"handle":       {dlpack.View{Device: dlpack.Device{Type: 4}}, Options{}, ErrOption},
	} {
		c.v.DataType = float32Type
		_, err := NewSpec(c.v, c.o)
		require.ErrorIs(t, err, c.kind, name)
		testenv.As[*Error](t, err)
	}
}

func TestOffsetRank(t *testing.T) {
	s := specOf(t, docA, Options{})
	require.Equal(t, int64(2+16+64+1), s.Offset(1, 1, 1, 1))
	require.Panics(t, func() { s.Offset(1, 2) })
}

func TestStrings(t *testing.T) {
	s := specOf(t, dlpack.View{Shape: []int64{30, 20}}, Options{Strides: Strides64})
	require.Equal(t, "Float32@generic o (30,20):(20,1)", s.String())
	require.Equal(t, "Tensor<0x000000000875f580@generic o (30,20):(20,1)>", s.TensorString(addressOf(0x875f580)))
	require.NoError(t, s.MarkCompactShapeDynamic(1, nil, 4))
	require.Equal(t, Strides64, s.width)
}

// addressOf makes a pointer that is only printed.
func addressOf(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

func TestByteOffset(t *testing.T) {
	memory := make([]float32, 16)
	v := dlpack.View{Data: unsafe.Pointer(&memory[0]), ByteOffset: 8, Shape: []int64{4}, DataType: float32Type}
	require.NoError(t, testenv.ErrorOf(NewSpec(v, Options{})))
	v.ByteOffset = 6
	require.ErrorIs(t, testenv.ErrorOf(NewSpec(v, Options{})), ErrAlignment)
}

func TestCheckFlags(t *testing.T) {
	require.ErrorIs(t, CheckFlags(dlpack.Float4E2M1FN, dlpack.SubBytePadded), ErrElementType)
	require.NoError(t, CheckFlags(dlpack.Float4E2M1FN, dlpack.ReadOnly))
	require.NoError(t, CheckFlags(dlpack.Float32, dlpack.SubBytePadded))
}

func TestWords(t *testing.T) {
	for _, v := range readVectors(t) {
		s, err := v.run(LeadingSkipSizeOne, Strides64)
		if err != nil {
			continue
		}
		requireWords(t, s)
	}
	for _, rank := range []int{0, 8, 9, 63, 64} {
		requireWords(t, specOf(t, wideView(rank), Options{Strides: Strides32, Leading: LeadingSkipSizeOne}))
	}
}

func requireWords(t *testing.T, s Spec) {
	t.Helper()
	words := s.AppendWords(nil)
	require.Len(t, words, wordCount(s.Rank()))
	require.Equal(t, s, testenv.Must(SpecFromWords(words))(t))
}

func TestRefusedWords(t *testing.T) {
	s := specOf(t, docA, Options{})
	require.NoError(t, s.MarkCompactShapeDynamic(0, nil, 2))
	good := s.AppendWords(nil)
	for name, change := range map[string]func(w []int64) []int64{
		"nothing":           func([]int64) []int64 { return nil },
		"too short":         func(w []int64) []int64 { return w[:len(w)-1] },
		"too long":          func(w []int64) []int64 { return append(w, 0) },
		"version":           func(w []int64) []int64 { w[0]++; return w },
		"element type":      func(w []int64) []int64 { w[0] |= 0xff << 8; return w },
		"rank":              func(w []int64) []int64 { w[0] |= 0xff << 40; return w },
		"flags":             func(w []int64) []int64 { w[0] |= 1 << 50; return w },
		"alignment":         func(w []int64) []int64 { w[1] = 3; return w },
		"span":              func(w []int64) []int64 { w[2]++; return w },
		"extent":            func(w []int64) []int64 { w[3] = -1; return w },
		"overflow":          func(w []int64) []int64 { w[3] = math.MaxInt64; return w },
		"order twice":       func(w []int64) []int64 { w[len(w)-1] = 0; return w },
		"order out of rank": func(w []int64) []int64 { w[len(w)-1] = 0x07010003; return w },
	} {
		require.Error(t, testenv.ErrorOf(SpecFromWords(change(append([]int64(nil), good...)))), name)
	}
}
