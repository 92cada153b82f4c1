package dlpack_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

func TestNamesRoundTrip(t *testing.T) {
	require.Len(t, dlpack.DataTypes(), 33)
	seen := map[string]bool{}
	for _, d := range dlpack.DataTypes() {
		name := d.Name()
		require.NotEmpty(t, name)
		require.Equal(t, name, d.String())
		require.False(t, seen[name], "%s twice", name)
		seen[name] = true
		require.Equal(t, d, testenv.Must(dlpack.ParseName(name))(t))
		require.NoError(t, d.Check())
	}
}

// TestEveryCodeHasAName: every code of the standard except the opaque handle has a type with a name.
func TestEveryCodeHasAName(t *testing.T) {
	codes := map[dlpack.Code]bool{dlpack.CodeOpaqueHandle: true}
	for _, d := range dlpack.DataTypes() {
		codes[d.Code] = true
	}
	for c := dlpack.CodeInt; c <= dlpack.CodeFloat4E2M1FN; c++ {
		require.True(t, codes[c], c)
	}
	require.Equal(t, "Code(18)", dlpack.Code(18).String())
}

func TestTypeStrings(t *testing.T) {
	for d, want := range map[dlpack.DataType]string{
		dlpack.Bool: "|b1", dlpack.Int8: "|i1", dlpack.Uint8: "|u1", dlpack.Int16: "<i2", dlpack.Uint64: "<u8",
		dlpack.Float16: "<f2", dlpack.Float32: "<f4", dlpack.Float64: "<f8",
		dlpack.Complex64: "<c8", dlpack.Complex128: "<c16",
	} {
		require.Equal(t, want, testenv.Must(d.TypeString())(t))
		for _, sign := range []string{"<", "=", "|", ""} {
			back, err := dlpack.ParseTypeString(sign + want[1:])
			require.NoError(t, err, sign+want[1:])
			require.Equal(t, d, back)
		}
	}
	// The order of one byte does not matter.
	require.Equal(t, dlpack.Uint8, testenv.Must(dlpack.ParseTypeString(">u1"))(t))
}

func TestTypeStringErrors(t *testing.T) {
	for s, word := range map[string]string{
		"": "empty", "<": "empty", ">f4": "foreign byte order", "!i8": "foreign byte order", "f16": "size",
		"<f3": "size", "<b4": "size", "<c32": "size", "m8": "time difference", "<M8[ns]": "date", "|O8": "Python objects",
		"|V16": "structured", "<U4": "text", "S3": "byte strings", "<q8": "not understood", "float32": "size", "<f-4": "size",
		"<<f4": "not understood", "\x00": "not understood",
	} {
		_, err := dlpack.ParseTypeString(s)
		require.ErrorIs(t, err, dlpack.ErrDataType, s)
		require.ErrorContains(t, err, word, s)
	}
	for _, d := range dlpack.DataTypes() {
		if _, err := d.TypeString(); err != nil {
			testenv.Failed(t, err, dlpack.ErrDataType, d.Name())
		}
	}
	require.ErrorContains(t, testenv.ErrorOf(dlpack.ParseName("<f4")), `write "float32"`)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.ParseName("double")), dlpack.ErrDataType)
}

func TestDataTypeCheck(t *testing.T) {
	for d, word := range map[dlpack.DataType]string{
		{Code: dlpack.CodeFloat, Bits: 32, Lanes: 4}:        "float32 with 4 lanes",
		{Code: dlpack.CodeFloat, Bits: 24, Lanes: 2}:        "kDLFloat of 24 bits with 2 lanes",
		{Code: dlpack.CodeFloat, Bits: 32}:                  "0 lanes",
		{Code: dlpack.CodeBool, Bits: 1, Lanes: 1}:          "kDLBool of 1 bits",
		{Code: dlpack.CodeOpaqueHandle, Bits: 64, Lanes: 1}: "opaque handles",
		{Code: 18, Bits: 8, Lanes: 1}:                       "Code(18)",
		{Code: dlpack.CodeFloat4E2M1FN, Bits: 8, Lanes: 1}:  "kDLFloat4_e2m1fn of 8 bits",
		{Code: dlpack.CodeInt, Bits: 24, Lanes: 1}:          "kDLInt of 24 bits",
		{Code: dlpack.CodeInt, Bits: 128, Lanes: 1}:         "kDLInt of 128 bits",
		{}: "0 lanes",
	} {
		err := d.Check()
		require.ErrorIs(t, err, dlpack.ErrDataType, d)
		require.ErrorContains(t, err, word)
	}
	require.Equal(t, "float32x4", dlpack.DataType{Code: dlpack.CodeFloat, Bits: 32, Lanes: 4}.String())
	require.Equal(t, "kDLInt of 24 bits", dlpack.DataType{Code: dlpack.CodeInt, Bits: 24, Lanes: 1}.String())
	require.Equal(t, "kDLInt of 24 bits and 2 lanes", dlpack.DataType{Code: dlpack.CodeInt, Bits: 24, Lanes: 2}.String())
}

func TestByteSize(t *testing.T) {
	for _, c := range []struct {
		d      dlpack.DataType
		n      int64
		padded bool
		want   int64
	}{
		{dlpack.Float32, 0, false, 0}, {dlpack.Float32, 5, false, 20}, {dlpack.Complex128, 3, false, 48},
		{dlpack.Float4E2M1FN, 5, false, 3}, {dlpack.Float4E2M1FN, 5, true, 5}, {dlpack.Float6E2M3FN, 3, false, 3},
		{dlpack.Float6E2M3FN, 4, false, 3}, {dlpack.Float6E2M3FN, 5, false, 4}, {dlpack.Int1, 9, false, 2},
		{dlpack.Uint8, math.MaxInt64 / 8, true, math.MaxInt64 / 8}, {dlpack.Int1, math.MaxInt64, false, 1 << 60},
		{dlpack.DataType{Code: dlpack.CodeFloat, Bits: 32, Lanes: 4}, 2, false, 32},
	} {
		require.Equal(t, c.want, testenv.Must(c.d.ByteSize(c.n, c.padded))(t), "%s %d", c.d, c.n)
	}
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Float32.ByteSize(math.MaxInt64/32+1, false)), dlpack.ErrOverflow)
	require.ErrorIs(t, testenv.ErrorOf(dlpack.Float32.ByteSize(-1, false)), dlpack.ErrShape)
	require.Equal(t, 1, dlpack.Float6E2M3FN.Size())
	require.Equal(t, 16, dlpack.Complex128.Size())
	require.Equal(t, 6, dlpack.Float6E2M3FN.StorageBits(false))
	require.Equal(t, 8, dlpack.Float6E2M3FN.StorageBits(true))
	require.Equal(t, 32, dlpack.Float32.StorageBits(true))
}

func TestKinds(t *testing.T) {
	require.True(t, dlpack.Float4E2M1FN.IsFloat())
	require.True(t, dlpack.BFloat16.IsFloat())
	require.False(t, dlpack.Complex64.IsFloat())
	require.True(t, dlpack.Uint4.IsInteger())
	require.False(t, dlpack.Bool.IsInteger())
	require.True(t, dlpack.Complex32.IsComplex())
	require.False(t, dlpack.Float32.IsComplex())
	require.True(t, dlpack.Int4.IsSubByte())
	require.False(t, dlpack.Bool.IsSubByte())
}

func TestGoTypes(t *testing.T) {
	require.Equal(t, dlpack.Float32, dlpack.DataTypeOf[float32]())
	require.Equal(t, dlpack.Float16, dlpack.DataTypeOf[dlpack.F16]())
	require.Equal(t, dlpack.BFloat16, dlpack.DataTypeOf[dlpack.BF16]())
	require.Equal(t, strconv.IntSize, dlpack.DataTypeOf[int]().BitSize())
	require.Equal(t, dlpack.CodeUInt, dlpack.DataTypeOf[uint]().Code)
	for _, d := range dlpack.DataTypes() {
		g := d.GoType()
		without := d == dlpack.Complex32 || d.IsSubByte() || d.IsFloat() && d.Bits == 8
		require.Equal(t, without, g == nil, d)
		if g != nil {
			require.Equal(t, d.Size(), int(g.Size()), d)
		}
	}
}

// goldenFloats returns values as computed by ml_dtypes 0.6 and NumPy.
func goldenFloats(t *testing.T) map[string]string {
	t.Helper()
	text := testenv.Must(os.ReadFile("testdata/float_values.json"))(t)
	var golden map[string]string
	require.NoError(t, json.Unmarshal(text, &golden))
	return golden
}

func requireFloat(t *testing.T, want string, got float32, what string) {
	t.Helper()
	if want == "nan" {
		require.True(t, got != got, what)
		return
	}
	require.Equal(t, want, fmt.Sprintf("%08x", math.Float32bits(got)), what)
}

// Every value of every narrow format equals ml_dtypes' value.
func TestNarrowFloats(t *testing.T) {
	golden := goldenFloats(t)
	for _, d := range dlpack.DataTypes() {
		if !d.IsFloat() || d.Bits > 8 {
			continue
		}
		name := d.Name()
		values := strings.Fields(golden[name])
		require.Len(t, values, 1<<d.Bits, name)
		for i, want := range values {
			what := fmt.Sprintf("%s %#x", name, i)
			requireFloat(t, want, float32(d.FloatFormat().Decode(uint64(i))), what)
		}
	}
}

func TestHalfFloats(t *testing.T) {
	golden := goldenFloats(t)
	for i, want := range strings.Fields(golden["float16_values"]) {
		requireFloat(t, want, float32(dlpack.Float16.FloatFormat().Decode(uint64(i*37))), fmt.Sprint("float16 ", i*37))
	}
	for _, pair := range strings.Split(golden["bfloat16_rounding"], ",") {
		var from uint32
		var to uint16
		require.NoError(t, testenv.ErrorOf(fmt.Sscanf(pair, "%x %x", &from, &to)))
		v := float64(math.Float32frombits(from))
		got := dlpack.BF16(dlpack.BFloat16.FloatFormat().Encode(v))
		if math.IsNaN(v) {
			require.True(t, math.IsNaN(float64(got.Float32())), pair)
			continue
		}
		require.Equal(t, dlpack.BF16(to), got, pair)
		require.Equal(t, got, dlpack.BF16From(float32(v)), pair)
	}
	nan := dlpack.BF16From(math.Float32frombits(0x7f800001)).Float32()
	require.True(t, nan != nan)
	require.Equal(t, float32(1.5), dlpack.F16From(1.5).Float32())
	require.Equal(t, float32(-2), dlpack.BF16(0xc000).Float32())
	require.Equal(t, float32(1.5), dlpack.F16(0x3e00).Float32())
}

var typeForm = regexp.MustCompile(`^([<=|>!]?)([biufc])([1-9][0-9]*)$`)

// byTypeForm parses a type string by its grammar: a byte-order sign, which must be the machine's except
// for single bytes, a letter, and the size in bytes without leading zeros.
func byTypeForm(s string) (dlpack.DataType, bool) {
	m := typeForm.FindStringSubmatch(s)
	if m == nil {
		return dlpack.DataType{}, false
	}
	size, err := strconv.Atoi(m[3])
	sizes := map[string][]int{"b": {1}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "f": {2, 4, 8}, "c": {8, 16}}[m[2]]
	foreign := m[1] == ">" || m[1] == "!" // of every machine that this is built for
	if err != nil || !slices.Contains(sizes, size) || foreign && size > 1 {
		return dlpack.DataType{}, false
	}
	codes := map[string]dlpack.Code{"b": dlpack.CodeBool, "i": dlpack.CodeInt, "u": dlpack.CodeUInt, "f": dlpack.CodeFloat, "c": dlpack.CodeComplex}
	return dlpack.DataType{Code: codes[m[2]], Bits: uint8(8 * size), Lanes: 1}, true
}

// FuzzParseTypeString: strings of the grammar are parsed as their type; all other strings are refused.
func FuzzParseTypeString(f *testing.F) {
	for _, s := range []string{"<f4", "|b1", "=i8", ">u2", "c16", "", "<", "<M8[ns]", "|V3", ">b1", "!u1", "f04", "<c4", "<f2\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := dlpack.ParseTypeString(s)
		want, ok := byTypeForm(s)
		require.Equal(t, ok, err == nil, "%q: %v", s, err)
		if err != nil {
			require.ErrorIs(t, err, dlpack.ErrDataType)
			return
		}
		require.Equal(t, want, d, "%q", s)
		require.Equal(t, testenv.Must(d.TypeString())(t)[1:], strings.TrimLeft(s, "<=|>!"))
	})
}

func TestDevices(t *testing.T) {
	require.Equal(t, "kDLOneAPI:3", dlpack.OneAPI(3).String())
	require.Equal(t, "kDLCPU:0", dlpack.CPU.String())
	require.Equal(t, "DeviceType(5)", dlpack.DeviceType(5).String())
	require.False(t, dlpack.DeviceType(-1).Known())
	require.True(t, dlpack.CPU.HostReadable())
	require.True(t, dlpack.Device{Type: dlpack.DeviceCUDAHost}.HostReadable())
	require.False(t, dlpack.OneAPI(0).HostReadable())
	require.Equal(t, "1.3", dlpack.CurrentVersion.String())
	require.Equal(t, "0", dlpack.Flags(0).String())
	require.Equal(t, "READ_ONLY|IS_SUBBYTE_TYPE_PADDED|0x10", (dlpack.ReadOnly | dlpack.SubBytePadded | 16).String())
}

func TestNegotiate(t *testing.T) {
	for _, c := range []struct {
		limit     *dlpack.Version
		flags     dlpack.Flags
		versioned bool
		err       error
	}{
		{nil, 0, false, nil},
		{nil, dlpack.IsCopied, false, nil},
		{nil, dlpack.ReadOnly, false, dlpack.ErrReadOnly},
		{nil, dlpack.SubBytePadded, false, dlpack.ErrLegacy},
		{&dlpack.Version{Major: 0, Minor: 8}, 0, false, nil},
		{&dlpack.Version{Major: 0, Minor: 8}, dlpack.ReadOnly, false, dlpack.ErrReadOnly},
		{&dlpack.Version{Major: 1, Minor: 0}, dlpack.ReadOnly, true, nil},
		{&dlpack.Version{Major: 1, Minor: 3}, dlpack.SubBytePadded, true, nil},
		{&dlpack.Version{Major: 2, Minor: 0}, 0, true, nil},
	} {
		versioned, err := dlpack.Negotiate(c.limit, c.flags)
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.versioned, versioned)
	}
}
