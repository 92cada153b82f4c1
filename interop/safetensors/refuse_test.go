package safetensors_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/safetensors"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// file returns a safetensors file with the given header and number of data bytes.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func open(b []byte) (*safetensors.File, error) {
	return safetensors.NewFile(bytes.NewReader(b), int64(len(b)))
}

// headers has texts of valid and invalid headers.
var headers = []struct {
	header    string
	data      int
	want      error
	stricter  bool // than the reference implementation is
	peerReads bool // for other reasons than the format's
}{
	{header: `{}`},
	{header: `{}      `},
	{header: `{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`, data: 24},
	{header: `{"a":{"data_offsets":[0,24],"shape":[2,3],"dtype":"F32"}}`, data: 24},
	{header: `{"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, data: 7},
	{header: `{"__metadata__":{"k":"v"},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`},
	{header: `{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}`, data: 3},
	{header: `{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}`, data: 3},
	{header: `{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 1},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":{"x":[1,{"y":null,"z":2}],"y":{}}}}`, data: 1},

	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":{"x":1,"x":2}}}`, data: 1},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":"[\"{` + strings.Repeat("[", 100) + `"}}`, data: 1},
	{header: `{"\ud83d\uDE00\u00e9\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 1},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}}`, data: 1},

	{header: ``, want: safetensors.ErrFormat},
	{header: `{"\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"\ude00\ud83d":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"\ud83d\u0041":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"__metadata__":{"k":"x\udfff"}}`, want: safetensors.ErrFormat},
	{header: `{"__metadata__":{"\\\uDBFF":"x"}}`, want: safetensors.ErrFormat},
	{header: `{"__metadata__":{"k":"\`, want: safetensors.ErrFormat},
	{header: `{"__metadata__":{"k":"\ud800\u`, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[1 2]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{"k" 2}}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{1:2}}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[1}}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":-}}`, data: 1, want: safetensors.ErrFormat},
	{header: ` {}`, want: safetensors.ErrFormat, stricter: true},
	{header: `[]`, want: safetensors.ErrFormat},
	{header: `{`, want: safetensors.ErrFormat},
	{header: `{}x`, want: safetensors.ErrFormat},
	{header: `{}{}`, want: safetensors.ErrFormat},
	{header: "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", data: 1, want: safetensors.ErrFormat},
	{header: `{"a":1}`, want: safetensors.ErrFormat},
	{header: `{"a":{}}`, want: safetensors.ErrFormat},
	{header: `{"a":{"shape":[1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}}`, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807]}}`, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 2, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 0, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, data: 2, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, data: 1, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, data: 3, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, data: 3, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, data: 2, want: safetensors.ErrFormat},
	{header: `{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, data: 2, want: safetensors.ErrFormat},
	{header: `{"__metadata__":{"k":1}}`, want: safetensors.ErrFormat},
	{header: `{"__metadata__":{"k":{"x":"y"}}}`, want: safetensors.ErrFormat},
	{header: `{"__metadata__":[]}`, want: safetensors.ErrFormat},

	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat, stricter: true},
	{header: `{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat, stricter: true},
	{header: `{"__metadata__":{"k":"v","k":"w"}}`, want: safetensors.ErrFormat, stricter: true},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1,"more":2}}`, data: 1, want: safetensors.ErrFormat, stricter: true},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":"\ud800"}}`, data: 1, want: safetensors.ErrFormat, stricter: true},
	{header: `{"__metadata__":null}`, want: safetensors.ErrFormat, stricter: true},
	{header: `{"a":{"dtype":"U8","shape":[` + strings.Repeat("1,", 64) + `1],"data_offsets":[0,1]}}`, data: 1, want: safetensors.ErrFormat, peerReads: true},
	{header: `{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`, data: 1, want: safetensors.ErrFormat, peerReads: true},
}

// TestSkippedValueTakesNoMemoryOfItsOwn checks that the memory for an ignored value does not grow with the number of
// values in it.
func TestSkippedValueTakesNoMemoryOfItsOwn(t *testing.T) {
	of := func(inner string) float64 {
		b := file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":[`+inner+`0]}}`, 1)
		return testing.AllocsPerRun(3, func() {
			require.NoError(t, testenv.ErrorOf(open(b)))
		})
	}
	const n = 10_000
	many := of(strings.Repeat(`{"k":0},`, n))
	require.Less(t, many, of("")+n/10, "allocations")
}

func TestHeaders(t *testing.T) {
	for _, c := range headers {
		f, err := open(file(c.header, c.data))
		if c.want == nil {
			require.NoError(t, err, c.header)
			continue
		}
		require.Nil(t, f, c.header)
		require.ErrorIs(t, err, c.want, c.header)
		op := testenv.As[*safetensors.OpError](t, err)
		require.Equal(t, "NewFile", op.Op)
	}
	_, err := open(binary.LittleEndian.AppendUint64(nil, 100_000_001))
	require.ErrorIs(t, err, safetensors.ErrFormat)
	require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorIs(t, testenv.ErrorOf(open(binary.LittleEndian.AppendUint64(nil, 1<<63))), safetensors.ErrFormat)
}

// TestUnknownType checks that a file with a tensor of an unknown type can be read, except for that tensor.
func TestUnknownType(t *testing.T) {
	f := testenv.Must(open(file(`{"a":{"dtype":"F128","shape":[1],"data_offsets":[0,16]},"b":{"dtype":"U8","shape":[1],"data_offsets":[16,17]}}`, 17)))(t)
	info, ok := f.Tensor("a")
	require.True(t, ok)
	require.Equal(t, usmarray.DataType{}, info.DataType)
	require.Equal(t, "F128", info.TypeName)
	ctx := context.Background()
	testenv.Failed(t, testenv.ErrorOf(f.Read(ctx, "a", memmgr.Host(), safetensors.ReadOptions{})), usmarray.ErrType, `tensor "a"`)
	require.ErrorIs(t, testenv.ErrorOf(f.ReadAll(ctx, memmgr.Host(), safetensors.ReadOptions{})), usmarray.ErrType)
	all := testenv.Must(f.ReadAll(ctx, memmgr.Host(), safetensors.ReadOptions{}, "b", "b"))(t)
	require.Len(t, all, 1)
	all["b"].Release()
}

func TestNames(t *testing.T) {
	ctx := context.Background()
	f := testenv.Must(open(saved(t)))(t)
	require.ErrorIs(t, testenv.ErrorOf(f.Read(ctx, "none", memmgr.Host(), safetensors.ReadOptions{})), safetensors.ErrName)
	require.ErrorIs(t, testenv.ErrorOf(f.ReadAll(ctx, memmgr.Host(), safetensors.ReadOptions{}, "a", "none")), safetensors.ErrName)
	_, ok := f.Tensor("none")
	require.False(t, ok)
	a := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{2, 3}))(t)
	require.ErrorIs(t, f.ReadInto(ctx, "none", a, safetensors.ReadOptions{}), safetensors.ErrName)
	for _, name := range []string{"__metadata__", "\xff"} {
		require.ErrorIs(t, safetensors.Write(ctx, io.Discard, map[string]*usmarray.Array{name: a}, safetensors.WriteOptions{}), safetensors.ErrName)
	}
	require.Error(t, safetensors.Write(ctx, io.Discard, nil, safetensors.WriteOptions{Metadata: map[string]string{"\xff": ""}}))
	odd := testenv.Held(usmarray.New(memmgr.Host(), usmarray.DataType{Code: 17, Bits: 4, Lanes: 1}, []int{3}))(t)
	require.ErrorIs(t, safetensors.Write(ctx, io.Discard, map[string]*usmarray.Array{"a": odd}, safetensors.WriteOptions{}), usmarray.ErrLayout)
	// A caller may change a description without effect on the file.
	f.Tensors()[0].Shape[0] = 100
	require.Equal(t, []int{2, 3}, f.Tensors()[0].Shape)
	require.Nil(t, f.Metadata())
}

// saved returns a file with a tensor of 6 float32 elements and one of 3 bytes.
func saved(t testing.TB) []byte {
	t.Helper()
	a := testenv.Held(usmarray.FromSlice(memmgr.Host(), []float32{1, 2, 3, 4, 5, 6}, []int{2, 3}))(t)
	b := testenv.Held(usmarray.FromSlice(memmgr.Host(), []uint8{7, 8, 9}, nil))(t)
	var out bytes.Buffer
	require.NoError(t, safetensors.Write(context.Background(), &out, map[string]*usmarray.Array{"a": a, "b": b}, safetensors.WriteOptions{}))
	return out.Bytes()
}

func TestTruncatedAtEveryByte(t *testing.T) {
	whole := saved(t)
	for n := range whole {
		_, err := open(whole[:n])
		require.ErrorIs(t, err, safetensors.ErrFormat, "%d bytes", n)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes", n)
	}
	require.ErrorIs(t, testenv.ErrorOf(open(append(whole, 0))), safetensors.ErrFormat)
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	a := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Int8, []int{3}))(t)
	require.ErrorIs(t, testenv.ErrorOf(safetensors.Open(dir)), safetensors.ErrNotRegular)
	require.ErrorIs(t, safetensors.Save(context.Background(), dir, map[string]*usmarray.Array{"a": a}, safetensors.WriteOptions{}), safetensors.ErrNotRegular)
	require.ErrorIs(t, testenv.ErrorOf(safetensors.Open(filepath.Join(dir, "none"))), fs.ErrNotExist)
	require.Error(t, testenv.ErrorOf(safetensors.NewFile(nil, 3)))
	require.Empty(t, transfertest.List(t, dir))
}

var errDisk = errors.New("the disk is broken")

// large returns a file with tensors of several pieces, and the position of its data.
func large(t testing.TB) ([]byte, int) {
	t.Helper()
	tensors := map[string]*usmarray.Array{}
	for i := range 3 {
		tensors[fmt.Sprint(i)] = testenv.Held(usmarray.Arange[float32](memmgr.Host(), 0, 1, 3<<18+i))(t)
	}
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(context.Background(), &b, tensors, safetensors.WriteOptions{}))
	return b.Bytes(), int(binary.LittleEndian.Uint64(b.Bytes())) + 8
}

// TestFailingReaders checks that ReadAll returns no arrays and leaves no memory if the reader fails in any tensor. Package npy has
// the other failures of the reading code that both share.
func TestFailingReaders(t *testing.T) {
	whole, start := large(t)
	transfertest.EveryMemory(t, func(t *testing.T, r memmgr.Resource) {
		for _, from := range []int{start, start + 1<<20 + 1, start + 4<<20, len(whole) - 1} {
			for _, readers := range []int{1, 4} {
				for _, want := range []error{errDisk, io.EOF} {
					f := testenv.Must(safetensors.NewFile(&transfertest.Failing{ReaderAt: bytes.NewReader(whole), From: int64(from),
						Fail: func([]byte, int64) (int, error) { return 0, want }}, int64(len(whole))))(t)
					all, err := f.ReadAll(context.Background(), r, safetensors.ReadOptions{Readers: readers})
					require.Nil(t, all)
					if errors.Is(want, io.EOF) {
						want = io.ErrUnexpectedEOF
					}
					require.ErrorIs(t, err, want)
				}
			}
		}
	})
}

// TestLimit checks that ReadAll leaves no memory if the limit allows only some of the tensors.
func TestLimit(t *testing.T) {
	whole, _ := large(t)
	f := testenv.Must(open(whole))(t)
	pool := transfertest.Pool(t, memmgr.Host(), memmgr.WithLimit(8<<20))
	_, err := f.ReadAll(context.Background(), pool, safetensors.ReadOptions{})
	require.ErrorIs(t, err, usmarray.ErrOutOfMemory)
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	testenv.Held(f.Read(context.Background(), "2", pool, safetensors.ReadOptions{}))(t)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestFailingWriters checks streams that fail at any byte and contexts that end; no file is left.
func TestFailingWriters(t *testing.T) {
	a := testenv.Held(usmarray.Arange[float32](memmgr.Host(), 0, 1, 3<<18))(t)
	tensors := map[string]*usmarray.Array{"a": a, "b": a}
	for _, most := range []int{0, 1, 64, 3 << 20, 6 << 20} {
		written := 0
		err := safetensors.Write(context.Background(), writerFunc(func(p []byte) (int, error) {
			n := min(len(p), most-written)
			if written += n; n < len(p) {
				return n, errDisk
			}
			return n, nil
		}), tensors, safetensors.WriteOptions{})
		require.ErrorIs(t, err, errDisk)
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	require.ErrorIs(t, safetensors.Write(ctx, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }), tensors, safetensors.WriteOptions{}), context.Canceled)
	require.ErrorIs(t, safetensors.Save(ctx, filepath.Join(dir, "a"), tensors, safetensors.WriteOptions{}), context.Canceled)
	require.Empty(t, transfertest.List(t, dir))
}

func TestDiskFull(t *testing.T) { transfertest.DiskFull(t) }
