package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) { memtest.Main(m) }

// noise returns n reproducible random bytes.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(b) // never fails
	return b
}

type readerAt func(p []byte, at int64) (int, error)

func (f readerAt) ReadAt(p []byte, at int64) (int, error) { return f(p, at) }

// TestPiecesCoverParts checks that the pieces of a part contain each byte of it exactly once, in order.
func TestPiecesCoverParts(t *testing.T) {
	for _, p := range []Part{
		{Run: 1, Count: 1}, {Run: PieceBytes, Count: 3, Stride: PieceBytes + 5}, {Run: PieceBytes + 1, Count: 2, Stride: 3 * PieceBytes},
		{Run: 7, Count: 1 << 18, Stride: 9}, {Run: 600 << 10, Count: 3, Stride: 700 << 10}, {Run: 3*PieceBytes - 16, Count: 1}, {},
	} {
		c := cursor{parts: []Part{p, {}, p}}
		total, places := int64(0), int64(0)
		for {
			x, ok := c.next()
			if !ok {
				break
			}
			require.Positive(t, x.n)
			require.LessOrEqual(t, x.n, int64(PieceBytes))
			if x.runs > 1 {
				require.Zero(t, x.off)
				require.Equal(t, x.runs*p.Run, x.n)
			}
			require.Equal(t, places%max(p.bytes(), 1), x.run*p.Run+x.off, "%+v", p)
			places += x.n
			total += x.n
		}
		require.Equal(t, 2*p.bytes(), total, "%+v", p)
	}
}

// TestRowsOfFortranOrder reads rows of Fortran order, with long and short runs and gaps. It checks the elements
// and the number of bytes read.
func TestRowsOfFortranOrder(t *testing.T) {
	for _, c := range []struct {
		rows, columns, lo, hi int
		most                  float64 // maximum ratio of bytes read to bytes requested
	}{
		{100, 3000, 10, 20, 12}, {5000, 40, 100, 4900, 1.1}, {100000, 30, 5, 6, 1}, {40000, 20, 1000, 21000, 1},
		{3, 700000, 1, 2, 3.1}, {1 << 21, 2, 1, 1<<21 - 1, 1},
	} {
		file := noise(c.rows * c.columns)
		var read atomic.Int64
		src := testenv.Must(FromReaderAt(readerAt(func(p []byte, at int64) (int, error) {
			read.Add(int64(len(p)))
			return bytes.NewReader(file).ReadAt(p, at)
		}), int64(len(file))))(t)
		e := &Elements{DataType: usmarray.Uint8, Shape: []int{c.rows, c.columns}, Fortran: true}
		arrays := testenv.Must(ReadNew(context.Background(), src, []Wish{{e, Rows{Lo: c.lo, Hi: c.hi}}}, memmgr.Host(), Options{Workers: 2}))(t)
		b := testenv.Must(arrays[0].Buffer().Bytes())(t)
		n := c.hi - c.lo
		for i := range c.columns {
			require.True(t, bytes.Equal(file[i*c.rows+c.lo:i*c.rows+c.hi], b[i*n:(i+1)*n]), "column %d of %+v", i, c)
		}
		require.LessOrEqual(t, float64(read.Load()), c.most*float64(n*c.columns), "%+v", c)
		arrays[0].Release()
	}
}

// TestPackedRows checks that rows of packed elements are read if they begin at a byte boundary, and refused
// otherwise.
func TestPackedRows(t *testing.T) {
	e := &Elements{DataType: usmarray.DataType{Code: 17, Bits: 4, Lanes: 1}, Shape: []int{5, 3}}
	src := testenv.Must(FromReaderAt(bytes.NewReader(noise(8)), 8))(t)
	for _, r := range []Rows{{Lo: 2, Hi: 5}, {Lo: 0, Hi: 3}, {Lo: 4, Hi: 5}, {Lo: 3, Hi: 3}} {
		arrays := testenv.Must(ReadNew(context.Background(), src, []Wish{{e, r}}, memmgr.Host(), Options{}))(t)
		whole := testenv.Must(ReadNew(context.Background(), src, []Wish{{e, Whole}}, memmgr.Host(), Options{}))(t)
		part := testenv.Must(whole[0].Index(usmarray.IndexRange(r.Lo, r.Hi)))(t)
		require.Equal(t, part.String(), arrays[0].String())
		arrays[0].Release()
		whole[0].Release()
	}
	require.ErrorIs(t, testenv.ErrorOf(ReadNew(context.Background(), src, []Wish{{e, Rows{Lo: 1, Hi: 5}}}, memmgr.Host(), Options{})), usmarray.ErrLayout)
}

// TestMemoryThatTheKernelCannotReach checks that reads and writes that fail with EFAULT are repeated with other
// memory.
func TestMemoryThatTheKernelCannotReach(t *testing.T) {
	file := noise(3<<20 + 5)
	var refused atomic.Int64
	src := testenv.Must(FromReaderAt(readerAt(func(p []byte, at int64) (int, error) {
		if len(p) > scratchBytes {
			refused.Add(1)
			return 0, &os.PathError{Op: "read", Path: "x", Err: errFault}
		}
		return bytes.NewReader(file).ReadAt(p, at)
	}), int64(len(file))))(t)
	e := &Elements{DataType: usmarray.Uint8, Shape: []int{len(file)}}
	arrays := testenv.Must(ReadNew(context.Background(), src, []Wish{{e, Whole}}, memmgr.Host(), Options{Workers: 2}))(t)
	defer arrays[0].Release()
	require.EqualValues(t, 3, refused.Load())
	b := testenv.Must(arrays[0].Buffer().Bytes())(t)
	require.True(t, bytes.Equal(file, b[:len(file)]))

	c := testenv.Must(NewContent(arrays[0], true, 0))(t)
	memory := &b[0]
	w := &picky{refuse: func(p []byte) bool { return &p[0] == memory }}
	require.NoError(t, c.WriteTo(context.Background(), w))
	require.True(t, w.refused)
	require.True(t, bytes.Equal(file, w.Bytes()))
}

// picky is a writer that fails with EFAULT for some memory.
type picky struct {
	bytes.Buffer
	refuse  func([]byte) bool
	refused bool
}

func (w *picky) Write(p []byte) (int, error) {
	if w.refuse(p) {
		w.refused = true
		return 0, errFault
	}
	return w.Buffer.Write(p)
}

func TestSwap(t *testing.T) {
	for width, want := range map[int]string{0: "abcdefghijklmnop", 1: "abcdefghijklmnop", 2: "badcfehgjilknmpo", 4: "dcbahgfelkjiponm", 8: "hgfedcbaponmlkji"} {
		b := []byte("abcdefghijklmnop")
		swapBytes(b, width)
		require.Equal(t, want, string(b))
	}
	require.Zero(t, SwapFor(!bigEndian, usmarray.Int8))
	require.Zero(t, SwapFor(bigEndian, usmarray.Float64))
	require.Equal(t, 8, SwapFor(!bigEndian, usmarray.Complex128))
}

// TestByteOrderOfContent checks that contiguous and strided elements are written in foreign byte order, and that
// the array is not changed.
func TestByteOrderOfContent(t *testing.T) {
	a := testenv.Held(usmarray.FromSlice(memmgr.Host(), []uint16{0x0102, 0x0304, 0x0506, 0x0708}, []int{2, 2}))(t)
	turned := testenv.Must(a.Transpose())(t)
	want := map[*usmarray.Array][]byte{a: {1, 2, 3, 4, 5, 6, 7, 8}, turned: {1, 2, 5, 6, 3, 4, 7, 8}}
	for x, b := range want {
		c := testenv.Must(NewContent(x, false, SwapFor(true, usmarray.Int16)))(t)
		if bigEndian {
			t.Skip("the requested byte order is the native one")
		}
		var out bytes.Buffer
		require.NoError(t, c.WriteTo(context.Background(), &out))
		require.Equal(t, b, out.Bytes())
		require.Equal(t, "[[ 258  772]\n [1286 1800]]", a.String())
	}
}

// TestWriterAtFailures checks that after an error at any position all goroutines end and the error is
// returned.
func TestWriterAtFailures(t *testing.T) {
	a := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Uint8, []int{4<<20 + 1}))(t)
	c := testenv.Must(NewContent(a, false, 0))(t)
	broken := errors.New("broken")
	for _, from := range []int64{0, 5, 1 << 20, 4 << 20} {
		for _, workers := range []int{1, 3} {
			err := c.WriteAt(context.Background(), writerAt(func(p []byte, at int64) (int, error) {
				if at+int64(len(p)) > from {
					return 0, broken
				}
				return len(p), nil
			}), 0, workers)
			require.ErrorIs(t, err, broken)
		}
	}
	require.ErrorIs(t, c.WriteAt(context.Background(), writerAt(func(p []byte, _ int64) (int, error) { return len(p) - 1, nil }), 0, 2), io.ErrShortWrite)
	ctx, cancel := context.WithCancel(context.Background())
	require.ErrorIs(t, c.WriteAt(ctx, writerAt(func(p []byte, _ int64) (int, error) { cancel(); return len(p), nil }), 0, 1), context.Canceled)
}

type writerAt func(p []byte, at int64) (int, error)

func (f writerAt) WriteAt(p []byte, at int64) (int, error) { return f(p, at) }

// TestCreateLeavesNothing checks that no file is left if fill fails or panics, or if the context ends before
// the rename.
func TestCreateLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	broken := errors.New("broken")
	ctx, cancel := context.WithCancel(context.Background())
	for _, inPlace := range []bool{false, true} {
		require.ErrorIs(t, Create(ctx, path, inPlace, func(*os.File) error { return broken }), broken)
		require.PanicsWithValue(t, broken, func() { _ = Create(ctx, path, inPlace, func(*os.File) error { panic(broken) }) })
	}
	require.ErrorIs(t, Create(ctx, path, false, func(*os.File) error { cancel(); return nil }), context.Canceled)
	require.Empty(t, testenv.Must(os.ReadDir(dir))(t))
}

func TestWorkers(t *testing.T) {
	require.Positive(t, Workers(0))
	require.LessOrEqual(t, Workers(0), 8)
	require.Equal(t, 5, Workers(5))
	require.Equal(t, MaxWorkers, Workers(1000))
	require.Positive(t, Workers(-1))
}

// TestPackedRowsEndWithinAByte checks that reading rows that end within a byte keeps the other bits of that
// byte, which belong to adjacent elements.
func TestPackedRowsEndWithinAByte(t *testing.T) {
	packedRows(t, memmgr.Host())
}

func packedRows(t *testing.T, r memmgr.Resource) {
	t.Helper()
	type4, type6 := usmarray.DataType{Code: 17, Bits: 4, Lanes: 1}, usmarray.DataType{Code: 15, Bits: 6, Lanes: 1}
	for _, c := range []struct {
		dtype usmarray.DataType
		rows  Rows
		want  []byte
	}{
		{type4, Rows{Lo: 0, Hi: 1}, []byte{0xF1, 0xFF, 0xFF}},
		{type4, Rows{Lo: 0, Hi: 3}, []byte{0x21, 0xF3, 0xFF}},
		{type4, Rows{Lo: 2, Hi: 3}, []byte{0xF3, 0xFF, 0xFF}},
		{type4, Rows{Lo: 0, Hi: 4}, []byte{0x21, 0x43, 0xFF}},
		{type4, Rows{Lo: 1, Hi: 1}, []byte{0xFF, 0xFF, 0xFF}},
		{type6, Rows{Lo: 0, Hi: 1}, []byte{0xE1, 0xFF, 0xFF}},
		{type6, Rows{Lo: 0, Hi: 3}, []byte{0x21, 0x43, 0xFD}},
	} {
		src := testenv.Must(FromReaderAt(bytes.NewReader([]byte{0x21, 0x43, 0x65}), 3))(t)
		e := &Elements{DataType: c.dtype, Shape: []int{4}}
		raw := &Elements{DataType: usmarray.Uint8, Shape: []int{3}}
		ones := testenv.Must(FromReaderAt(bytes.NewReader([]byte{0xFF, 0xFF, 0xFF}), 3))(t)
		arrays := testenv.Must(ReadNew(context.Background(), ones, []Wish{{raw, Whole}}, r, Options{}))(t)
		l := testenv.Must(usmarray.NewLayout([]int{c.rows.Hi - c.rows.Lo}, nil, 0))(t)
		view := testenv.Must(usmarray.WrapBuffer(arrays[0].Buffer(), c.dtype, l))(t)
		require.NoError(t, ReadInto(context.Background(), src, Wish{e, c.rows}, view, 1))
		content := testenv.Must(NewContent(arrays[0], false, 0))(t)
		var got bytes.Buffer
		require.NoError(t, content.WriteTo(context.Background(), &got))
		require.Equal(t, c.want, got.Bytes(), "%v %v", c.dtype, c.rows)
		view.Release()
		arrays[0].Release()
	}
}

// TestReadNewDoesNotWaitForItself checks that only the first allocation waits for memory.
func TestReadNewDoesNotWaitForItself(t *testing.T) {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(4<<20))
	src := testenv.Must(FromReaderAt(bytes.NewReader(noise(6<<20)), 6<<20))(t)
	e := &Elements{DataType: usmarray.Uint8, Shape: []int{3 << 20}}
	none := &Elements{DataType: usmarray.Uint8, Shape: []int{0}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.ErrorIs(t, testenv.ErrorOf(ReadNew(ctx, src, []Wish{{e, Whole}, {e, Whole}}, pool, Options{})), memmgr.ErrOutOfMemory)
	require.NoError(t, ctx.Err(), "the call waited")
	require.Zero(t, pool.Stats().AllocatedBytes.Current, "all memory was released")

	// The call waits for memory that other code holds.
	other := testenv.Must(memmgr.New(pool, memmgr.Request{Size: 3 << 20}))(t)
	ended := make(chan error, 1)
	go func() {
		arrays, err := ReadNew(ctx, src, []Wish{{none, Whole}, {e, Whole}}, pool, Options{})
		for _, a := range arrays {
			a.Release()
		}
		ended <- err
	}()
	require.Eventually(t, func() bool { return pool.Stats().NumWaiting > 0 }, time.Minute, time.Millisecond)
	other.Release()
	require.NoError(t, <-ended)
	require.NoError(t, pool.Close())
}

// TestRingIsContentWithLess checks that a transfer works with fewer slots than requested.
func TestRingIsContentWithLess(t *testing.T) {
	memmgr.SetDefaultLimit(4 << 20)
	defer memmgr.SetDefaultLimit(0)
	a := testenv.Held(usmarray.New(memmgr.Host(), usmarray.Uint8, []int{1 << 12, 3 << 12}))(t)
	b := testenv.Must(a.Buffer().Bytes())(t)
	copy(b, noise(len(b)))
	turned := testenv.Held(a.Transpose())(t)
	c := testenv.Must(NewContent(turned, false, 0))(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var want bytes.Buffer
	require.NoError(t, c.WriteTo(ctx, &want))
	f := testenv.Must(os.Create(filepath.Join(t.TempDir(), "file")))(t)
	defer f.Close()
	require.NoError(t, c.WriteAt(ctx, f, 0, 8))
	got := testenv.Must(os.ReadFile(f.Name()))(t)
	require.True(t, bytes.Equal(want.Bytes(), got))
}
