//go:build linux && cgo

package cute

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// owning returns a tensor of C memory and its owner, which counts releases.
func owning(t testing.TB, shape ...int64) (*Tensor, cpeer.Owner) {
	x, owner := exported(t, 0, dlpack.Float32, shape, nil)
	c := testenv.Must(FromDLPack(x, Options{}))(t)
	return c, owner
}

func TestTensorFacts(t *testing.T) {
	c, owner := owning(t, 30, 20)
	defer c.Release()
	s := c.Spec()
	require.Equal(t, []int64{30, 20}, s.Shape())
	require.Equal(t, []int64{20, 1}, s.Stride())
	require.Equal(t, 2, s.Rank())
	require.Equal(t, "generic", s.MemSpace().String())
	require.Equal(t, "Float32", s.ElementType().String())
	require.EqualValues(t, 4, s.align)
	data := testenv.Must(c.Data())(t)
	require.Regexp(t, `^Tensor<0x[0-9a-f]{16}@generic o \(30,20\):\(20,1\)>$`, c.String())
	require.Equal(t, c.String(), ptr(c.Spec()).TensorString(data))
	require.NoError(t, c.MarkCompactShapeDynamic(0, nil, 5))
	require.Equal(t, "(?{div=5},20):(20,1)", c.Layout())
	require.NoError(t, c.MarkLayoutDynamic(-1))
	require.Equal(t, "(?,?):(?,1)", c.Layout())
	require.Equal(t, []int64{30, 20}, ptr(c.Spec()).Shape(), "extents are kept")
	require.Zero(t, owner.Drops())
}

func TestByteOffset(t *testing.T) {
	memory := make([]float32, 16)
	v := dlpack.View{Data: unsafe.Pointer(&memory[0]), ByteOffset: 8, Shape: []int64{4}, DataType: dlpack.Float32, Device: dlpack.CPU}
	c := testenv.Must(Wrap(v, Options{}))(t)
	defer c.Release()
	require.Equal(t, unsafe.Pointer(&memory[2]), testenv.Must(c.Data())(t))
	v.ByteOffset = 6
	require.ErrorIs(t, testenv.ErrorOf(Wrap(v, Options{})), ErrAlignment)
}

func TestUseAfterRelease(t *testing.T) {
	c, owner := owning(t, 4, 6)
	c.Release()
	c.Release()
	require.EqualValues(t, 1, owner.Drops(), "released once")

	require.ErrorIs(t, c.MarkLayoutDynamic(Deduce), ErrReleased)
	require.ErrorIs(t, c.MarkCompactShapeDynamic(0, nil, 1), ErrReleased)
	require.ErrorIs(t, testenv.ErrorOf(c.Data()), ErrReleased)
	_, err := c.Clone()
	require.ErrorIs(t, err, ErrReleased)
	require.Equal(t, "Tensor<released>", c.String())
	for name, use := range map[string]func(){
		"Spec":   func() { c.Spec() },
		"Key":    func() { c.Key() },
		"Layout": func() { c.Layout() },
	} {
		func() {
			defer func() {
				err, ok := recover().(error)
				require.True(t, ok, "%s must panic with an error", name)
				require.ErrorIs(t, err, ErrReleased)
				require.ErrorContains(t, err, name)
			}()
			use()
		}()
	}
}

func TestCloneKeepsSource(t *testing.T) {
	for _, shape := range [][]int64{{4, 6}, wideView(12).Shape} {
		a, owner := owning(t, shape...)
		b := testenv.Must(a.Clone())(t)
		before := a.Layout()
		require.NoError(t, b.MarkLayoutDynamic(-1))
		require.Equal(t, before, a.Layout(), "marks of a clone are its own")
		a.Release()
		require.Zero(t, owner.Drops(), "the clone holds the source")
		c, err := b.Clone()
		require.NoError(t, err, "a clone of a clone outlives the first tensor")
		b.Release()
		require.Zero(t, owner.Drops())
		c.Release()
		require.EqualValues(t, 1, owner.Drops())
	}
}

func TestCloneAndReleaseTogether(t *testing.T) {
	for range 200 {
		a, owner := owning(t, 4, 6)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				if b, err := a.Clone(); err == nil {
					b.Release()
				}
			})
		}
		group.Go(a.Release)
		group.Wait()
		require.EqualValues(t, 1, owner.Drops())
	}
}

func TestWrapRefuses(t *testing.T) {
	require.ErrorIs(t, testenv.ErrorOf(Wrap(dlpack.View{DataType: dlpack.Complex64}, Options{})), ErrElementType)
	require.ErrorIs(t, testenv.ErrorOf(FromDLPack(dlpack.Tensor{}, Options{})), ErrReleased)
}

// TestReuse: a tensor that reuses the Spec of a released one has none of its contents.
func TestReuse(t *testing.T) {
	for range 100 {
		for _, rank := range []int{64, 9, 3, 12, 0, 8} {
			v := wideView(rank)
			fresh := testenv.Must(NewSpec(v, Options{}))(t)
			c := testenv.Must(Wrap(v, Options{}))(t)
			require.Equal(t, fresh.AppendWords(nil), c.spec.AppendWords(nil))
			require.Equal(t, fresh.Key(), c.Key())
			if rank > 0 {
				require.NoError(t, c.MarkCompactShapeDynamic(rank-1, descending(rank), 1))
			}
			c.Release()
		}
	}
}

// descending is the stride order of C order.
func descending(rank int) []int {
	order := make([]int, rank)
	for i := range order {
		order[i] = i
	}
	return order
}
