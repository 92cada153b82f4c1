//go:build linux && cgo

package cute

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// exported returns a DLPack tensor of C memory, and its owner, which counts dropped references.
func exported(t testing.TB, flags dlpack.Flags, dt dlpack.DataType, shape, strides []int64) (dlpack.Tensor, cpeer.Owner) {
	page := testenv.Must(syscall.Mmap(-1, 0, 1<<16, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))(t)
	owner := cpeer.NewOwner()
	t.Cleanup(func() {
		require.NoError(t, syscall.Munmap(page))
		owner.Free()
	})
	x := testenv.Must(dlpack.Export(&dlpack.View{
		Data: unsafe.Pointer(&page[0]), Shape: shape, Strides: strides, DataType: dt, Device: dlpack.CPU,
	}, flags, true, owner.DLPack()))(t)
	return x, owner
}

func requireDeleted(t *testing.T, want int64, owner cpeer.Owner) {
	t.Helper()
	require.Equal(t, want, owner.Drops())
}

// TestFromDLPack: the tensor is taken over, has the same address, and is released with the result.
func TestFromDLPack(t *testing.T) {
	x, deleted := exported(t, 0, dlpack.Float32, []int64{30, 20}, nil)
	data := x.Data()
	c := testenv.Must(FromDLPack(x, Options{AssumedAlign: 4096}))(t)
	got := testenv.Must(c.Data())(t)
	require.Equal(t, data, got, "nothing is copied")
	require.Equal(t, "(30,20):(20,1)", c.Layout())
	requireDeleted(t, 0, deleted)
	require.False(t, x.Valid())
	x.Release() // like a deferred Release; does nothing, because c owns it
	requireDeleted(t, 0, deleted)
	require.ErrorIs(t, testenv.ErrorOf(FromDLPack(x, Options{})), ErrReleased)
	c.Release()
	requireDeleted(t, 1, deleted)

	require.ErrorIs(t, testenv.ErrorOf(FromDLPack(x, Options{})), ErrReleased)
}

// TestFailureLeavesTensor: after any failure the caller still owns the tensor.
func TestFailureLeavesTensor(t *testing.T) {
	for name, c := range map[string]struct {
		dt      dlpack.DataType
		flags   dlpack.Flags
		shape   []int64
		strides []int64
		options Options
		kind    error
	}{
		"alignment":       {dlpack.Float32, 0, []int64{4}, nil, Options{AssumedAlign: 1 << 62}, ErrAlignment},
		"element type":    {dlpack.Complex64, 0, []int64{4}, nil, Options{}, ErrElementType},
		"padded sub-byte": {dlpack.DataType{Code: 17, Bits: 4, Lanes: 1}, dlpack.SubBytePadded, []int64{4}, nil, Options{}, ErrElementType},
	} {
		t.Run(name, func(t *testing.T) {
			x, deleted := exported(t, c.flags, c.dt, c.shape, c.strides)
			require.ErrorIs(t, testenv.ErrorOf(FromDLPack(x, c.options)), c.kind)
			require.True(t, x.Valid())
			requireDeleted(t, 0, deleted)
			x.Release()
			requireDeleted(t, 1, deleted)
		})
	}
}

func TestSixtyFourModes(t *testing.T) {
	shape := make([]int64, MaxRank)
	for i := range shape {
		shape[i] = 1 + int64(i)/60
	}
	x, deleted := exported(t, 0, dlpack.Float16, shape, nil)
	c := testenv.Must(FromDLPack(x, Options{Leading: LeadingSkipSizeOne}))(t)
	require.NoError(t, c.MarkLayoutDynamic(Deduce))
	require.Equal(t, shape, ptr(c.Spec()).Shape())
	require.Regexp(t, `^\(\?(,\?){63}\):\((\?,){63}1\)$`, c.Layout())
	c.Release()
	requireDeleted(t, 1, deleted)
}

// BenchmarkFromDLPackMarked measures CuTe DSL's implicit conversion.
func BenchmarkFromDLPackMarked(b *testing.B) {
	x, _ := exported(b, 0, dlpack.Float32, []int64{30, 20, 32}, nil)
	defer x.Release()
	b.ReportAllocs()
	for b.Loop() {
		c, err := FromDLPack(x, Options{})
		if err == nil {
			err = c.MarkLayoutDynamic(Deduce)
		}
		if err != nil {
			b.Fatal(err)
		}
		c.owns = false // x serves all rounds
		x, _ = c.src.Take()
		c.Release()
	}
	reportRatio(b, convertBound)
}
