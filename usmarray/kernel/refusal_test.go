package kernel_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// TestRefusals: a refused launch names the argument, leaves the arrays unchanged, and submits nothing.
func TestRefusals(t *testing.T) {
	rt, q := testsycl.Need(t)
	p := build(t, q, source)
	scale, add, reverse, table, vector := take(t, p, "scale"), take(t, p, "add"), take(t, p, "reverse"), take(t, p, "table"), take(t, p, "vector")
	column := take(t, p, "column")
	r := resource(t, q, syclobj.USMShared)
	x := testenv.Held(usmarray.Zeros(r, usmarray.Float32, []int{8, 4}))(t)
	n := testenv.Held(usmarray.Zeros(r, usmarray.Int32, []int{8}))(t)
	fixed := x.AsReadOnly()
	gaps := testenv.Must(x.Index(usmarray.All, usmarray.IndexFrom(0).By(2)))(t)
	host := testenv.Held(usmarray.Zeros(memmgr.Host(), usmarray.Float32, []int{32}))(t)
	f := kernel.Scalar(float32(1))
	ctx := testenv.Opened(rt.NewContext(q.Device()))(t)
	elsewhere := testenv.Opened(rt.NewQueue(ctx, q.Device(), syclobj.InOrder))(t)
	far := testsycl.USM(t, elsewhere, syclobj.USMShared)
	foreign := testenv.Held(usmarray.Zeros(far, usmarray.Float32, []int{32}))(t)

	over := kernel.Over(32)
	for _, c := range []struct {
		name  string
		k     *syclobj.Kernel
		over  kernel.Range
		args  []kernel.Arg
		index int
		is    error
		says  string
	}{
		{"too few", scale, over, []kernel.Arg{kernel.Read(x), kernel.ReadWrite(x)}, -1, syclobj.ErrArgument, "takes 3 arguments (got 2)"},
		{"too many", scale, over, []kernel.Arg{kernel.Read(x), kernel.ReadWrite(x), f, f}, -1, syclobj.ErrArgument, "takes 3 arguments (got 4)"},
		{"zero argument", scale, over, []kernel.Arg{kernel.Read(x), {}, f}, 1, syclobj.ErrArgument, "the zero KernelArg"},
		{"nil array", scale, over, []kernel.Arg{kernel.Read(nil), kernel.ReadWrite(x), f}, 0, syclobj.ErrNil, "a nil array"},
		{"host array", scale, over, []kernel.Arg{kernel.Read(x), kernel.ReadWrite(host), f}, 1, usmarray.ErrNotUSM, "ToDevice"},
		{"another context", scale, over, []kernel.Arg{kernel.Read(foreign), kernel.ReadWrite(x), f}, 0, usmarray.ErrNotUSM, "another context"},
		{"read-only written", scale, over, []kernel.Arg{kernel.Read(x), kernel.ReadWrite(fixed), f}, 1, usmarray.ErrReadOnly, "by Read"},
		{"read-only to a pointer that writes", scale, over, []kernel.Arg{kernel.Read(x), kernel.Read(fixed), f}, 1, usmarray.ErrReadOnly, "global float* y"},
		{"gaps", scale, over, []kernel.Arg{kernel.Read(gaps), kernel.ReadWrite(x), f}, 0, usmarray.ErrLayout, "Strided"},
		{"element type", scale, over, []kernel.Arg{kernel.Read(n), kernel.ReadWrite(x), f}, 0, usmarray.ErrType, "global const float* x, the elements are int32"},
		{"number for a pointer", scale, over, []kernel.Arg{f, kernel.ReadWrite(x), f}, 0, syclobj.ErrArgument, "pass a pointer to USM"},
		{"array for a number", add, over, []kernel.Arg{kernel.ReadWrite(n), kernel.ReadWrite(n)}, 1, syclobj.ErrArgument, "the kernel takes int n"},
		{"wrong size", add, over, []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int64(1))}, 1, syclobj.ErrArgument, "argument 1, int64"},
		{"float for an int", add, over, []kernel.Arg{kernel.ReadWrite(n), f}, 1, syclobj.ErrArgument, "argument 1, float32"},
		{"local for a number", add, over.By(1), []kernel.Arg{kernel.ReadWrite(n), kernel.Local[int32](1)}, 1, syclobj.ErrArgument, "4 bytes of local memory"},
		{"array for local", reverse, kernel.Over(8).By(4), []kernel.Arg{kernel.ReadWrite(n), kernel.ReadWrite(n)}, 1, syclobj.ErrArgument, "pass local memory"},
		{"local for an array", reverse, kernel.Over(8).By(4), []kernel.Arg{kernel.Local[int32](4), kernel.Local[int32](4)}, 0, syclobj.ErrArgument, "pass a pointer"},
		{"local without groups", reverse, kernel.Over(8), []kernel.Arg{kernel.ReadWrite(n), kernel.Local[int32](4)}, 1, syclobj.ErrArgument, "set the size of the groups"},
		{"no local memory", reverse, kernel.Over(8).By(4), []kernel.Arg{kernel.ReadWrite(n), kernel.Local[int32](0)}, 1, syclobj.ErrArgument, "at least one byte"},
		{"negative local memory", reverse, kernel.Over(8).By(4), []kernel.Arg{kernel.ReadWrite(n), kernel.Local[int32](-4)}, 1, syclobj.ErrArgument, "at least one byte"},
		{"too much local memory", reverse, kernel.Over(8).By(4), []kernel.Arg{kernel.ReadWrite(n), kernel.Local[float64](1 << 28)}, 1, syclobj.ErrArgument, "the device has"},
		{"number for constant memory", table, over, []kernel.Arg{f, kernel.ReadWrite(x)}, 0, syclobj.ErrArgument, "constant"},
		{"vector of another size", vector, over, []kernel.Arg{kernel.ReadWrite(x), kernel.Bytes(make([]byte, 8))}, 1, syclobj.ErrArgument, "16 bytes"},
		{"no bytes", vector, over, []kernel.Arg{kernel.ReadWrite(x), kernel.Bytes(nil)}, 1, syclobj.ErrArgument, "0 bytes"},
		{"no dimensions", add, kernel.Over(), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "0 dimensions"},
		{"four dimensions", add, kernel.Over(1, 1, 1, 1), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "1 to 3 dimensions"},
		{"negative range", add, kernel.Over(8, -1), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "[8 -1] work-items"},
		{"range too large", add, kernel.Over(1<<40, 1<<40), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "work-items"},
		{"groups do not divide", add, kernel.Over(8).By(3), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "do not divide"},
		{"groups of nothing", add, kernel.Over(8).By(0), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "do not divide"},
		{"groups of other dimensions", add, kernel.Over(8).By(2, 2), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "2 dimensions in a range of 1"},
		{"groups too large", add, kernel.Over(1 << 26).By(1 << 26), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "at most"},
		{"groups too large together", add, kernel.Over(1<<13, 1<<13).By(1<<13, 1<<13), []kernel.Arg{kernel.ReadWrite(n), kernel.Scalar(int32(1))}, -1, syclobj.ErrArgument, "at most"},
		{"the driver refuses", take(t, p, "four"), kernel.Over(8).By(8), []kernel.Arg{kernel.ReadWrite(n)}, -1, syclobj.ErrFailed, "reqd_work_group_size"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := kernel.Launch(q, c.k, c.over, c.args...)
			testenv.Failed(t, err, c.is, c.says)
			require.ErrorContains(t, err, "kernel "+c.k.Name())
			e := testenv.As[*kernel.OpError](t, err)
			require.Equal(t, c.index, e.Index, err.Error())
			require.Equal(t, "Launch", e.Op)
			require.Equal(t, 1, x.Buffer().Count(), "the array is held no longer")
			require.False(t, n.Buffer().Pending())
		})
	}

	require.NoError(t, kernel.Launch(q, column, kernel.Over(3), kernel.ReadWrite(testenv.Must(n.Index(usmarray.IndexFrom(1).By(3)))(t)).Strided(), kernel.Scalar(int64(3))))
	require.Equal(t, "[0 7 0 0 7 0 0 7]", n.String(), "a kernel that gets the strides may have gaps")

	testenv.Failed(t, kernel.Launch(elsewhere, scale, over, kernel.Read(foreign), kernel.ReadWrite(foreign), f), syclobj.ErrArgument, "build it for this queue")
	require.ErrorIs(t, kernel.Launch(nil, scale, over), syclobj.ErrNil)
	require.ErrorIs(t, kernel.Launch(q, nil, over), syclobj.ErrNil)
}

// TestReleasedArray: use after release is a mistake in the program and panics; the launch releases the
// memory that it held.
func TestReleasedArray(t *testing.T) {
	_, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "scale")
	r := resource(t, q, syclobj.USMShared)
	x := testenv.Held(usmarray.Zeros(r, usmarray.Float32, []int{8}))(t)
	gone := testenv.Must(usmarray.Zeros(r, usmarray.Float32, []int{8}))(t)
	gone.Release()
	func() {
		defer func() {
			err, ok := recover().(error)
			require.True(t, ok)
			require.ErrorIs(t, err, memmgr.ErrReleased)
		}()
		_ = kernel.Launch(q, k, kernel.Over(8), kernel.Read(x), kernel.ReadWrite(gone), kernel.Scalar(float32(1)))
		t.Error("no panic")
	}()
	require.Equal(t, 1, x.Buffer().Count())
	require.NoError(t, kernel.Launch(q, k, kernel.Over(8), kernel.Read(x), kernel.ReadWrite(x), kernel.Scalar(float32(1))))
}

func TestHostBackend(t *testing.T) {
	rt := testenv.Opened(syclobj.Open(syclobj.HostOnly()))(t)
	q := rt.DefaultQueue()
	testenv.Failed(t, testenv.ErrorOf(q.BuildOpenCL(source, "")), errors.ErrUnsupported, "host backend")
	require.ErrorIs(t, testenv.ErrorOf(q.BuildSPIRV(addModule(t), "")), errors.ErrUnsupported)
	require.ErrorIs(t, kernel.Launch(q, &syclobj.Kernel{}, kernel.Over(1)), errors.ErrUnsupported)
}
