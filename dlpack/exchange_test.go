//go:build linux && cgo

package dlpack_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// memory returns C memory for a test, aligned to 16 bytes.
func memory(t testing.TB, size int) unsafe.Pointer {
	p := cpeer.Alloc(size)
	require.NotNil(t, p)
	t.Cleanup(func() { cpeer.Free(p) })
	return p
}

func f32(p unsafe.Pointer, device dlpack.Device, shape, strides []int64) dlpack.View {
	return dlpack.View{Data: p, Device: device, DataType: dlpack.Float32, Shape: shape, Strides: strides}
}

// exportView and checkView are Export and Check for a view that is not addressable.
func exportView(v dlpack.View, flags dlpack.Flags, versioned bool, owner dlpack.Owner) (dlpack.Tensor, error) {
	return dlpack.Export(&v, flags, versioned, owner)
}

func checkView(v dlpack.View, flags dlpack.Flags) (dlpack.Span, error) {
	return dlpack.Check(&v, flags)
}

// exported returns an exported tensor as a consumer in C reads it.
func exported(t *testing.T, v dlpack.View, flags dlpack.Flags, versioned bool) cpeer.Fields {
	t.Helper()
	tensor := testenv.Held(exportView(v, flags, versioned, dlpack.Owner{}))(t)
	return cpeer.Read(tensor.Managed())
}

func TestExportFields(t *testing.T) {
	p := memory(t, 256)
	for _, versioned := range []bool{true, false} {
		f := exported(t, f32(p, dlpack.CPU, []int64{2, 3}, nil), dlpack.IsCopied, versioned)
		require.Equal(t, p, f.Data)
		require.Equal(t, dlpack.CPU, f.Device)
		require.Equal(t, dlpack.Float32, f.DataType)
		require.Equal(t, int32(2), f.NDim)
		require.Equal(t, []int64{2, 3}, f.Shape)
		require.Equal(t, []int64{3, 1}, f.Strides, "strides are always written")
		require.Zero(t, f.ByteOffset)
		require.False(t, f.NoDeleter, "a deleter is always there")
		if versioned {
			require.Equal(t, dlpack.Version{Major: 1, Minor: 3}, f.Version)
			require.Equal(t, dlpack.IsCopied, f.Flags)
		}
	}
	f := exported(t, f32(p, dlpack.CPU, nil, nil), 0, true)
	require.Zero(t, f.NDim)
	require.Nil(t, f.Shape, "0-d: NULL")
	require.Nil(t, f.Strides, "0-d: NULL")
	require.Zero(t, f.Flags, "0-d is not read-only")
	f = exported(t, f32(p, dlpack.CPU, []int64{1, 1}, []int64{77, -9}), dlpack.ReadOnly, true)
	require.Equal(t, []int64{77, -9}, f.Strides, "strides of extents of 1 are kept as given")
	require.Equal(t, dlpack.ReadOnly, f.Flags)
}

func TestExportByteOffset(t *testing.T) {
	p := memory(t, 256)
	oneAPI := dlpack.OneAPI(2)
	at := func(n int) unsafe.Pointer { return unsafe.Add(p, n) }
	offset := func(v dlpack.View, n uint64) dlpack.View { v.ByteOffset = n; return v }
	for _, c := range []struct {
		name   string
		view   dlpack.View
		data   unsafe.Pointer
		offset uint64
	}{
		{"folded", offset(f32(p, dlpack.CPU, []int64{4}, nil), 16), at(16), 0},
		{"folded on kDLOneAPI", offset(f32(p, oneAPI, []int64{4}, []int64{2}), 16), at(16), 0},
		{"negative on the CPU", f32(at(12), dlpack.CPU, []int64{4}, []int64{-1}), at(12), 0},
		{"negative on kDLOneAPI", f32(at(12), oneAPI, []int64{4}, []int64{-1}), p, 12},
		{"negative with its own offset", offset(f32(p, oneAPI, []int64{4}, []int64{-1}), 12), p, 12},
		{"one of two negative", f32(at(32), oneAPI, []int64{3, 2}, []int64{-4, 1}), p, 32},
		{"both negative", f32(at(36), oneAPI, []int64{3, 2}, []int64{-4, -1}), p, 36},
		{"negative where the extent is 1", f32(at(12), oneAPI, []int64{1}, []int64{-5}), at(12), 0},
		{"a handle keeps its offset", offset(f32(p, dlpack.Device{Type: dlpack.DeviceOpenCL}, []int64{4}, nil), 16), p, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := exported(t, c.view, 0, true)
			require.Equal(t, c.data, f.Data)
			require.Equal(t, c.offset, f.ByteOffset)
			// All forms have the same first element after the import.
			back := testenv.Must(checkView(dlpack.View{Data: f.Data, Device: f.Device, DataType: f.DataType, Shape: f.Shape,
				Strides: f.Strides, ByteOffset: f.ByteOffset}, 0))(t)
			if !f.Device.Type.IsHandle() {
				require.Equal(t, unsafe.Add(c.view.Data, c.view.ByteOffset), back.First)
			} else {
				require.Equal(t, c.view.ByteOffset, back.ByteOffset)
			}
		})
	}
}

// TestExportLowestOfPacked: packed elements may begin within a byte; the lowest address is a whole byte.
func TestExportLowestOfPacked(t *testing.T) {
	p := memory(t, 64)
	v := dlpack.View{Data: unsafe.Add(p, 8), Device: dlpack.OneAPI(0), DataType: dlpack.Float4E2M1FN,
		Shape: []int64{4}, Strides: []int64{-1}}
	f := exported(t, v, 0, true)
	require.Equal(t, unsafe.Add(p, 6), f.Data)
	require.Equal(t, uint64(2), f.ByteOffset)
	f = exported(t, v, dlpack.SubBytePadded, true)
	require.Equal(t, unsafe.Add(p, 5), f.Data)
	require.Equal(t, uint64(3), f.ByteOffset)
}

func TestExportOfNoElements(t *testing.T) {
	p := memory(t, 16)
	for _, versioned := range []bool{true, false} {
		f := exported(t, f32(p, dlpack.CPU, []int64{0, 3}, nil), 0, versioned)
		require.Nil(t, f.Data, "NULL on the CPU")
		require.Equal(t, []int64{3, 1}, f.Strides)
		f = exported(t, f32(nil, dlpack.CPU, []int64{0}, nil), 0, versioned)
		require.Nil(t, f.Data)
		f = exported(t, f32(p, dlpack.OneAPI(0), []int64{3, 0}, nil), 0, versioned)
		require.Equal(t, p, f.Data, "the USM pointer on kDLOneAPI")
		require.Equal(t, []int64{1, 1}, f.Strides)
		f = exported(t, f32(p, dlpack.Device{Type: dlpack.DeviceVulkan}, []int64{0}, nil), 0, versioned)
		require.Nil(t, f.Data)
		// Any strides of an empty tensor are kept. The sanitizer for undefined behaviour checks that nothing is
		// computed from them.
		wild := []int64{math.MinInt64, 1, math.MaxInt64, math.MinInt64}
		f = exported(t, f32(p, dlpack.OneAPI(0), []int64{5, 0, 1 << 40, 3}, wild), 0, versioned)
		require.Equal(t, p, f.Data)
		require.Equal(t, wild, f.Strides)
		require.ErrorIs(t, testenv.ErrorOf(exportView(f32(nil, dlpack.OneAPI(0), []int64{0}, nil), 0, versioned, dlpack.Owner{})), dlpack.ErrNull)
	}
	tensor := testenv.Must(exportView(f32(p, dlpack.CPU, []int64{0}, nil), 0, true, dlpack.Owner{}))(t)
	require.Nil(t, tensor.Data(), "as a consumer sees it")
	tensor.Release()
}

// layoutError is a tensor that can be neither exported nor imported.
type layoutError struct {
	view dlpack.View
	err  error
	text string
}

func layoutErrors(p unsafe.Pointer) map[string]layoutError {
	of := func(d dlpack.DataType, shape ...int64) dlpack.View {
		return dlpack.View{Data: p, Device: dlpack.CPU, DataType: d, Shape: shape}
	}
	at := func(n uint64, v dlpack.View) dlpack.View { v.ByteOffset = n; return v }
	odd := of(dlpack.Float32, 2)
	odd.Data = unsafe.Add(p, 2)
	high := of(dlpack.Uint8, 4)
	high.ByteOffset = math.MaxUint64
	handle := at(1<<63-2, of(dlpack.Uint8, 4))
	handle.Device = dlpack.Device{Type: dlpack.DeviceOpenCL}
	return map[string]layoutError{
		"negative extent":       {of(dlpack.Float32, 2, -1), dlpack.ErrShape, "shape[1] is -1"},
		"negative beside 0":     {of(dlpack.Float32, 0, -1), dlpack.ErrShape, "shape[1] is -1"},
		"product":               {of(dlpack.Uint8, 1<<32, 1<<32), dlpack.ErrOverflow, "63 bits"},
		"product beside 0":      {of(dlpack.Uint8, 0, 1<<32, 1<<32), dlpack.ErrOverflow, "63 bits"},
		"bytes":                 {of(dlpack.Float64, 1<<60), dlpack.ErrOverflow, "63 bits"},
		"bits":                  {of(dlpack.Float32, 1<<58), dlpack.ErrOverflow, "float32 of shape (288230376151711744), strides in C order"},
		"many dimensions":       {of(dlpack.Int8, 1<<20, 1<<20, 1<<20, 1<<20, 2, 3, 4, 5), dlpack.ErrOverflow, "2, 3, ...), strides"},
		"broadcast bits":        {f32(p, dlpack.CPU, []int64{1 << 58}, []int64{0}), dlpack.ErrOverflow, "63 bits"},
		"stride times extent":   {f32(p, dlpack.CPU, []int64{3}, []int64{math.MaxInt64}), dlpack.ErrStrides, "shape (3), strides (9223372036854775807), at 0x"},
		"negative stride":       {f32(p, dlpack.CPU, []int64{3}, []int64{math.MinInt64}), dlpack.ErrStrides, "strides reach"},
		"sum of strides":        {f32(p, dlpack.CPU, []int64{2, 2}, []int64{math.MaxInt64, 1}), dlpack.ErrStrides, "strides reach"},
		"sum of negatives":      {f32(p, dlpack.CPU, []int64{2, 2}, []int64{math.MinInt64, -1}), dlpack.ErrStrides, "strides reach"},
		"span in bits":          {f32(p, dlpack.CPU, []int64{2}, []int64{1 << 58}), dlpack.ErrStrides, "strides reach"},
		"span in bits downward": {f32(p, dlpack.CPU, []int64{2}, []int64{-1 << 59}), dlpack.ErrStrides, "strides reach"},
		"below address 0":       {f32(p, dlpack.CPU, []int64{2}, []int64{-1 << 57}), dlpack.ErrStrides, "strides reach"},
		"offset past the end":   {high, dlpack.ErrOverflow, "63 bits"},
		"offset above 2^63":     {at(1<<63, of(dlpack.Uint8, 4)), dlpack.ErrOverflow, "63 bits"},
		"end above 2^63":        {at(1<<63-2-uint64(uintptr(p)), of(dlpack.Uint8, 4)), dlpack.ErrStrides, "strides reach"},
		"handle's end":          {handle, dlpack.ErrStrides, "strides reach"},
		"pointer":               {odd, dlpack.ErrAlignment, "items take 4 bytes"},
		"byte_offset":           {at(2, of(dlpack.Float32, 2)), dlpack.ErrAlignment, "byte_offset 2"},
		"complex128":            {at(8, of(dlpack.Complex128, 2)), dlpack.ErrAlignment, "items take 16 bytes"},
		"no data":               {f32(nil, dlpack.CPU, []int64{2}, nil), dlpack.ErrNull, "data is NULL"},
		"no data, 0-d":          {f32(nil, dlpack.CPU, nil, nil), dlpack.ErrNull, "data is NULL"},
		"65 dimensions":         {of(dlpack.Float32, make([]int64, 65)...), dlpack.ErrShape, "ndim is 65"},
		"lanes":                 {of(dlpack.DataType{Code: dlpack.CodeFloat, Bits: 32, Lanes: 4}, 2), dlpack.ErrDataType, "float32 with 4 lanes"},
		"no lanes":              {of(dlpack.DataType{Code: dlpack.CodeFloat, Bits: 32}, 2), dlpack.ErrDataType, "0 lanes"},
		"bool of one bit":       {of(dlpack.DataType{Code: dlpack.CodeBool, Bits: 1, Lanes: 1}, 2), dlpack.ErrDataType, "bool of 1 bits"},
		"opaque":                {of(dlpack.DataType{Code: dlpack.CodeOpaqueHandle, Bits: 64, Lanes: 1}, 2), dlpack.ErrDataType, "opaque handles"},
		"fp6 of 8 bits":         {of(dlpack.DataType{Code: dlpack.CodeFloat6E2M3FN, Bits: 8, Lanes: 1}, 2), dlpack.ErrDataType, "type code 15 of 8 bits"},
		"code 18":               {of(dlpack.DataType{Code: 18, Bits: 8, Lanes: 1}, 2), dlpack.ErrDataType, "newer than DLPack 1.3"},
		"device 0":              {f32(p, dlpack.Device{}, []int64{2}, nil), dlpack.ErrDevice, "device (0, 0)"},
		"device id -1":          {f32(p, dlpack.OneAPI(-1), []int64{2}, nil), dlpack.ErrDevice, "device (14, -1)"},
	}
}

// TestExportErrors: a failed export takes nothing over; the owner is not dropped.
func TestExportErrors(t *testing.T) {
	p := memory(t, 64)
	owner := cpeer.NewOwner()
	defer owner.Free()
	for name, c := range layoutErrors(p) {
		t.Run(name, func(t *testing.T) {
			for _, versioned := range []bool{true, false} {
				tensor, err := exportView(c.view, 0, versioned, owner.DLPack())
				testenv.Failed(t, err, c.err, c.text)
				require.False(t, tensor.Valid())
			}
			require.ErrorIs(t, testenv.ErrorOf(checkView(c.view, 0)), c.err)
		})
	}
	for _, c := range []struct {
		view      dlpack.View
		flags     dlpack.Flags
		versioned bool
		err       error
	}{
		{f32(p, dlpack.CPU, []int64{2}, nil), dlpack.ReadOnly, false, dlpack.ErrReadOnly},
		{dlpack.View{Data: p, Device: dlpack.CPU, DataType: dlpack.Float4E2M1FN, Shape: []int64{2}}, dlpack.SubBytePadded, false, dlpack.ErrLegacy},
		{f32(p, dlpack.CPU, []int64{2}, nil), 8, true, dlpack.ErrFlags},
		{f32(p, dlpack.CPU, []int64{2}, nil), 8, false, dlpack.ErrFlags},
		{f32(p, dlpack.Device{Type: 19}, []int64{2}, nil), 0, true, dlpack.ErrDevice},
		{f32(p, dlpack.Device{Type: 5}, []int64{2}, nil), 0, true, dlpack.ErrDevice},
		{f32(p, dlpack.CPU, []int64{2}, []int64{}), 0, true, dlpack.ErrStrides},
		{f32(p, dlpack.CPU, []int64{2}, []int64{1, 1}), 0, true, dlpack.ErrStrides},
		// The bit of C's option is not a flag.
		{f32(p, dlpack.CPU, []int64{2}, nil), 1 << 33, true, dlpack.ErrFlags},
	} {
		require.ErrorIs(t, testenv.ErrorOf(exportView(c.view, c.flags, c.versioned, owner.DLPack())), c.err)
	}
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Export(nil, 0, true, owner.DLPack())), dlpack.ErrNull)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Check(nil, 0)), dlpack.ErrNull)
	require.Zero(t, owner.Drops())
	// Padding does not apply to whole bytes, so the legacy struct is sufficient.
	testenv.Must(exportView(f32(p, dlpack.CPU, []int64{2}, nil), dlpack.SubBytePadded, false, owner.DLPack()))(t).Release()
	require.Equal(t, int64(1), owner.Drops())
}

// fields returns the fields of a producer for a view.
func fields(v dlpack.View) cpeer.Fields {
	return cpeer.Fields{Version: dlpack.CurrentVersion, Data: v.Data, Device: v.Device, NDim: int32(len(v.Shape)),
		DataType: v.DataType, Shape: v.Shape, Strides: v.Strides, ByteOffset: v.ByteOffset}
}

// TestImportErrors: a failed import takes nothing over; the caller deletes the tensor once.
func TestImportErrors(t *testing.T) {
	p := memory(t, 64)
	type row struct {
		f    cpeer.Fields
		err  error
		text string
	}
	rows := map[string]row{
		"major 0":       {cpeer.Fields{Version: dlpack.Version{Major: 0, Minor: 8}}, dlpack.ErrVersion, "DLPack 0.8"},
		"major 2":       {cpeer.Fields{Version: dlpack.Version{Major: 2, Minor: 1}}, dlpack.ErrVersion, "DLPack 2.1"},
		"negative ndim": {fields(f32(p, dlpack.CPU, nil, nil)), dlpack.ErrShape, "ndim is -1"},
		"no shape":      {fields(f32(p, dlpack.CPU, nil, nil)), dlpack.ErrShape, "shape is NULL"},
	}
	for name, c := range layoutErrors(p) {
		rows[name] = row{fields(c.view), c.err, c.text}
	}
	for name, c := range rows {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "negative ndim":
				c.f.NDim = -1
			case "no shape":
				c.f.NDim = 2
			}
			for _, legacy := range []bool{false, true} {
				if legacy && c.err == dlpack.ErrVersion {
					continue // legacy has no version
				}
				c.f.Legacy = legacy
				before := cpeer.Deleted()
				managed := cpeer.Produce(c.f)
				tensor, err := dlpack.Import(managed, !legacy)
				testenv.Failed(t, err, c.err, c.text)
				require.False(t, tensor.Valid())
				typed := testenv.As[*dlpack.OpError](t, err)
				message, _, _, _, _, _ := cpeer.Snapshot(managed, !legacy, false)
				require.Equal(t, typed.Err.Error(), message, "C finds and says the same")
				if c.err != dlpack.ErrVersion {
					message, _, _, _, _, _ = cpeer.Snapshot(managed, !legacy, true)
					require.Equal(t, typed.Err.Error(), message)
				}
				require.Equal(t, before, cpeer.Deleted(), "not the importer's to delete")
				dlpack.Delete(managed, !legacy)
				require.Equal(t, before+1, cpeer.Deleted())
			}
		})
	}
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Import(nil, true)), dlpack.ErrNull)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Import(nil, false)), dlpack.ErrNull)
	for _, bare := range []bool{false, true} {
		message, _, _, _, _, _ := cpeer.Snapshot(nil, true, bare)
		require.Contains(t, message, "no memory behind the tensor")
	}
	dlpack.Delete(nil, true)
}

func TestImport(t *testing.T) {
	p := memory(t, 4096)
	many := make([]int64, 64)
	for i := range many {
		many[i] = 1
	}
	many[0], many[63] = 2, 3
	for name, c := range map[string]struct {
		view  dlpack.View
		span  dlpack.Span
		c, f  bool
		check []int64 // strides seen
	}{
		"C order":         {f32(p, dlpack.CPU, []int64{2, 3}, []int64{3, 1}), dlpack.Span{First: p, Count: 6, Hi: 24, ItemBits: 32}, true, false, []int64{3, 1}},
		"NULL strides":    {f32(p, dlpack.CPU, []int64{2, 3}, nil), dlpack.Span{First: p, Count: 6, Hi: 24, ItemBits: 32}, true, false, []int64{3, 1}},
		"Fortran order":   {f32(p, dlpack.CPU, []int64{2, 3}, []int64{1, 2}), dlpack.Span{First: p, Count: 6, Hi: 24, ItemBits: 32}, false, true, []int64{1, 2}},
		"gaps":            {f32(p, dlpack.CPU, []int64{2, 3}, []int64{8, 2}), dlpack.Span{First: p, Count: 6, Hi: 52, ItemBits: 32}, false, false, []int64{8, 2}},
		"negative":        {f32(unsafe.Add(p, 20), dlpack.CPU, []int64{2, 3}, []int64{-3, -1}), dlpack.Span{First: unsafe.Add(p, 20), Count: 6, Lo: -20, Hi: 4, ItemBits: 32}, false, false, []int64{-3, -1}},
		"broadcast":       {f32(p, dlpack.CPU, []int64{5, 2}, []int64{0, 1}), dlpack.Span{First: p, Count: 10, Hi: 8, ItemBits: 32}, false, false, []int64{0, 1}},
		"offset":          {dlpack.View{Data: p, ByteOffset: 16, Device: dlpack.CPU, DataType: dlpack.Float64, Shape: []int64{2}}, dlpack.Span{First: unsafe.Add(p, 16), Count: 2, Hi: 16, ItemBits: 64}, true, true, []int64{1}},
		"0-d":             {f32(p, dlpack.CPU, nil, nil), dlpack.Span{First: p, Count: 1, Hi: 4, ItemBits: 32}, true, true, nil},
		"size 0, NULL":    {f32(nil, dlpack.CPU, []int64{4, 0}, []int64{9, 9}), dlpack.Span{ItemBits: 32}, true, true, []int64{9, 9}},
		"size 0, odd":     {f32(unsafe.Add(p, 1), dlpack.CPU, []int64{0}, []int64{1}), dlpack.Span{First: unsafe.Add(p, 1), ItemBits: 32}, true, true, []int64{1}},
		"64 dimensions":   {f32(p, dlpack.CPU, many, nil), dlpack.Span{First: p, Count: 6, Hi: 24, ItemBits: 32}, true, false, nil},
		"extent 1":        {f32(p, dlpack.CPU, []int64{1, 3, 1}, []int64{100, 1, -7}), dlpack.Span{First: p, Count: 3, Hi: 12, ItemBits: 32}, true, true, []int64{100, 1, -7}},
		"fp4 packed":      {dlpack.View{Data: unsafe.Add(p, 1), Device: dlpack.CPU, DataType: dlpack.Float4E2M1FN, Shape: []int64{3}}, dlpack.Span{First: unsafe.Add(p, 1), Count: 3, Hi: 2, ItemBits: 4}, true, true, []int64{1}},
		"fp6 packed":      {dlpack.View{Data: p, Device: dlpack.CPU, DataType: dlpack.Float6E3M2FN, Shape: []int64{5}, Strides: []int64{-1}}, dlpack.Span{First: p, Count: 5, Lo: -3, Hi: 1, ItemBits: 6}, false, false, []int64{-1}},
		"a future device": {f32(p, dlpack.Device{Type: 99, ID: 3}, []int64{2}, nil), dlpack.Span{First: p, Count: 2, Hi: 8, ItemBits: 32}, true, true, []int64{1}},
		"a handle":        {dlpack.View{Data: unsafe.Add(p, 1), ByteOffset: 8, Device: dlpack.Device{Type: dlpack.DeviceMetal}, DataType: dlpack.Float32, Shape: []int64{2}}, dlpack.Span{First: unsafe.Add(p, 1), Count: 2, Hi: 8, ItemBits: 32, ByteOffset: 8}, true, true, []int64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, legacy := range []bool{false, true} {
				before := cpeer.Deleted()
				f := fields(c.view)
				f.Legacy, f.Version.Minor, f.Flags = legacy, 7, dlpack.ReadOnly|1<<40
				tensor := testenv.Must(dlpack.Import(cpeer.Produce(f), !legacy))(t)
				span := tensor.Span()
				require.Equal(t, c.c, span.CContiguous())
				require.Equal(t, c.f, span.FContiguous())
				require.Equal(t, fmt.Sprint(c.span.First, c.span.Count, c.span.Lo, c.span.Hi, c.span.ItemBits, c.span.ByteOffset),
					fmt.Sprint(span.First, span.Count, span.Lo, span.Hi, span.ItemBits, span.ByteOffset))
				if c.check != nil {
					require.Equal(t, c.check, tensor.Strides())
				}
				require.Equal(t, len(c.view.Shape), tensor.NDim())
				require.Equal(t, c.view.Strides != nil, tensor.HasStrides())
				require.Equal(t, c.view.Device, tensor.Device())
				require.Equal(t, !legacy, tensor.Versioned())
				if legacy {
					require.Zero(t, tensor.Version())
					require.Zero(t, tensor.Flags())
				} else {
					require.Equal(t, dlpack.Version{Major: 1, Minor: 7}, tensor.Version(), "a newer minor is fine")
					require.Equal(t, dlpack.ReadOnly|1<<40, tensor.Flags(), "flags of a newer minor are kept")
				}
				raw, offset := tensor.RawData()
				require.Equal(t, c.view.Data, raw)
				require.Equal(t, c.view.ByteOffset, offset)
				tensor.Release()
				require.Equal(t, before+1, cpeer.Deleted())
			}
		})
	}
}

func TestImportPadded(t *testing.T) {
	p := memory(t, 64)
	f := fields(dlpack.View{Data: p, Device: dlpack.CPU, DataType: dlpack.Float4E2M1FN, Shape: []int64{3}})
	f.Flags = dlpack.SubBytePadded
	tensor := testenv.Held(dlpack.Import(cpeer.Produce(f), true))(t)
	require.Equal(t, uint32(8), tensor.Span().ItemBits)
	require.Equal(t, int64(3), tensor.Span().Hi)
}

func TestImportWithoutDeleter(t *testing.T) {
	p := memory(t, 64)
	for _, legacy := range []bool{false, true} {
		f := fields(f32(p, dlpack.CPU, []int64{2}, nil))
		f.Legacy, f.NoDeleter = legacy, true
		managed := cpeer.Produce(f)
		before := cpeer.Deleted()
		testenv.Must(dlpack.Import(managed, !legacy))(t).Release()
		require.Equal(t, before, cpeer.Deleted())
		cpeer.FreeUndeleted(managed, !legacy)
	}
}

// TestDataTypesAlike: Go and C have the same rules for types.
func TestDataTypesAlike(t *testing.T) {
	p := memory(t, 64)
	for code := range 20 {
		for bits := range 256 {
			for lanes := range 3 {
				d := dlpack.DataType{Code: dlpack.Code(code), Bits: uint8(bits), Lanes: uint16(lanes)}
				_, err := checkView(dlpack.View{Data: p, Device: dlpack.CPU, DataType: d, Shape: []int64{1}}, 0)
				require.Equal(t, d.Check() == nil, err == nil, "%v: %v", d, err)
				require.Equal(t, d.Name(), cpeer.Name(d))
				want, _ := d.TypeString()
				require.Equal(t, want, cpeer.TypeString(d))
			}
		}
	}
	for _, d := range dlpack.DataTypes() {
		got, ok := cpeer.ByName(d.Name())
		require.True(t, ok)
		require.Equal(t, d, got)
	}
	_, ok := cpeer.ByName("double")
	require.False(t, ok)
}

// TestTypeStringsAlike: Go and C parse the same strings as the same types, for all strings of up to three
// bytes that could be a type and many more.
func TestTypeStringsAlike(t *testing.T) {
	alphabet := "\x00<=|>!biufcaOSUVmMt0123468? \xff"
	strings := []string{""}
	for first := 0; len(strings[len(strings)-1]) < 3; {
		level := strings[first:]
		first = len(strings)
		for _, s := range level {
			for i := range len(alphabet) {
				strings = append(strings, s+alphabet[i:i+1])
			}
		}
	}
	for _, d := range dlpack.DataTypes() {
		strings = append(strings, d.Name(), d.Name()+"x2", "<"+d.Name())
		if s, err := d.TypeString(); err == nil {
			for i := range len(alphabet) {
				c := alphabet[i : i+1]
				strings = append(strings, c+s[1:], c+s, s+c, s[:2]+c+s[2:], s[:1]+c+s[2:])
			}
		}
	}
	taken := 0
	for _, s := range strings {
		want, err := dlpack.ParseTypeString(s)
		got, ok := cpeer.ByTypeString(s)
		require.Equal(t, err == nil, ok, "%q", s)
		if ok {
			require.Equal(t, want, got, "%q", s)
			taken++
		}
		if !bytes.ContainsRune([]byte(s), 0) { // C's names end there
			want, err = dlpack.ParseName(s)
			got, ok = cpeer.ByName(s)
			require.Equal(t, err == nil, ok, "%q", s)
			if ok {
				require.Equal(t, want, got, "%q", s)
			}
		}
	}
	require.Greater(t, taken, 60)
}

// FuzzTypeStringsAlike is TestTypeStringsAlike for arbitrary bytes.
func FuzzTypeStringsAlike(f *testing.F) {
	for _, s := range []string{"<f4", "\x00f4", "|b1", ">u1", ">u2", "c16", "f4\x00", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := dlpack.ParseTypeString(s)
		got, ok := cpeer.ByTypeString(s)
		require.Equal(t, err == nil, ok, "%q", s)
		if ok {
			require.Equal(t, want, got, "%q", s)
		}
	})
}

func TestDevicesAlike(t *testing.T) {
	for i := int32(-3); i < 30; i++ {
		name := ""
		if dlpack.DeviceType(i).Known() {
			name = dlpack.DeviceType(i).String()
		}
		require.Equal(t, name, cpeer.DeviceName(i))
		require.Equal(t, dlpack.DeviceType(i).IsHandle(), cpeer.IsHandleDevice(i))
	}
}

func TestNegotiateAlike(t *testing.T) {
	limits := []*dlpack.Version{nil}
	for major := range uint32(4) {
		for minor := range uint32(5) {
			limits = append(limits, &dlpack.Version{Major: major, Minor: minor})
		}
	}
	for _, limit := range limits {
		for flags := range dlpack.Flags(8) {
			want, err := dlpack.Negotiate(limit, flags)
			got, code := cpeer.Negotiate(limit, flags)
			require.Equal(t, want, got)
			require.Equal(t, err == nil, code == 0)
		}
	}
}
