package kernel_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

const source = `
kernel void scale(global const float *x, global float *y, float f) { size_t i = get_global_id(0); y[i] = x[i] * f; }
kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
kernel void where(global int *x) {
	size_t i = get_global_id(0), j = get_global_id(1), k = get_global_id(2);
	x[(k * get_global_size(1) + j) * get_global_size(0) + i] = k * 10000 + j * 100 + i;
}
kernel void reverse(global int *x, local int *room) {
	size_t i = get_local_id(0), n = get_local_size(0);
	room[n - 1 - i] = x[get_global_id(0)];
	barrier(CLK_LOCAL_MEM_FENCE);
	x[get_global_id(0)] = room[i];
}
kernel void types(global long *x, char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h, float i) {
	x[0] = a; x[1] = b; x[2] = c; x[3] = d; x[4] = e; x[5] = f; x[6] = g; x[7] = h; x[8] = i * 2;
}
kernel void vector(global float *x, float4 v) { x[0] = v.x; x[1] = v.y; x[2] = v.z; x[3] = v.w; }
kernel void table(constant float *t, global float *x) { x[get_global_id(0)] = t[get_global_id(0)]; }
kernel void column(global int *x, long stride) { x[get_global_id(0) * stride] = 7; }
__attribute__((reqd_work_group_size(4, 1, 1))) kernel void four(global int *x) { x[get_global_id(0)] = 4; }
`

// TestDimensions: the last dimension varies fastest, as in C order.
func TestDimensions(t *testing.T) {
	_, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "where")
	r := resource(t, q, syclobj.USMShared)
	for _, c := range []struct {
		shape, group []int
	}{{[]int{6}, nil}, {[]int{6}, []int{3}}, {[]int{2, 6}, nil}, {[]int{2, 6}, []int{2, 3}}, {[]int{3, 4, 5}, nil}, {[]int{3, 4, 5}, []int{1, 2, 5}}} {
		x := testenv.Held(usmarray.New(r, usmarray.Int32, c.shape))(t)
		over := kernel.Over(c.shape...)
		if c.group != nil {
			over = over.By(c.group...)
		}
		require.NoError(t, kernel.Launch(q, k, over, kernel.ReadWrite(x)))
		got := testenv.Must(usmarray.ToSlice[int32](x))(t)
		padded := append([]int{1, 1, 1}[len(c.shape):], c.shape...)
		for at, v := range got {
			i, j, l := at%padded[2], at/padded[2]%padded[1], at/padded[2]/padded[1]
			require.Equal(t, int32(l*10000+j*100+i), v, "%v by %v at %d", c.shape, c.group, at)
		}
	}
}

func TestEveryScalarType(t *testing.T) {
	_, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "types")
	x := testenv.Held(usmarray.New(resource(t, q, syclobj.USMShared), usmarray.Int64, []int{9}))(t)
	require.NoError(t, kernel.Launch(q, k, kernel.Over(1), kernel.ReadWrite(x),
		kernel.Scalar(int8(-1)), kernel.Scalar(uint8(255)), kernel.Scalar(int16(-2)), kernel.Scalar(uint16(65535)), kernel.Scalar(int32(-3)),
		kernel.Scalar(uint32(math.MaxUint32)), kernel.Scalar(int64(math.MinInt64)), kernel.Scalar(uint64(math.MaxInt64)), kernel.Scalar(float32(2.5))))
	require.Equal(t, []int64{-1, 255, -2, 65535, -3, math.MaxUint32, math.MinInt64, math.MaxInt64, 5}, testenv.Must(usmarray.Slice[int64](x))(t))

	type celsius float32 // a type of the user's own
	y := testenv.Held(usmarray.FromSlice(resource(t, q, syclobj.USMShared), []float32{1, 2}, nil))(t)
	require.NoError(t, kernel.Launch(q, take(t, build(t, q, source), "scale"), kernel.Over(2), kernel.Read(y), kernel.ReadWrite(y), kernel.Scalar(celsius(3))))
	require.Equal(t, "[3. 6.]", y.String())
}

func TestLocalMemoryVectorsAndConstants(t *testing.T) {
	_, q := testsycl.Need(t)
	p := build(t, q, source)
	r := resource(t, q, syclobj.USMDevice)
	x := testenv.Held(usmarray.Arange[int32](r, 0, 1, 8))(t)
	require.NoError(t, kernel.Launch(q, take(t, p, "reverse"), kernel.Over(8).By(4), kernel.ReadWrite(x), kernel.Local[int32](4)))
	require.Equal(t, "[3 2 1 0 7 6 5 4]", x.String())

	var v [16]byte
	for i := range 4 {
		binary.NativeEndian.PutUint32(v[4*i:], math.Float32bits(float32(i)+0.5))
	}
	y := testenv.Held(usmarray.New(r, usmarray.Float32, []int{4}))(t)
	if err := kernel.Launch(q, take(t, p, "vector"), kernel.Over(1), kernel.ReadWrite(y), kernel.Bytes(v[:])); errors.Is(err, errors.ErrUnsupported) {
		t.Logf("left out: %v", err)
		require.NoError(t, y.CopyFrom(testenv.Held(usmarray.FromSlice(r, []float32{0.5, 1.5, 2.5, 3.5}, nil))(t)))
	} else {
		require.NoError(t, err)
	}
	require.Equal(t, "[0.5 1.5 2.5 3.5]", y.String())

	z := testenv.Held(usmarray.New(r, usmarray.Float32, []int{4}))(t)
	require.NoError(t, kernel.Launch(q, take(t, p, "table"), kernel.Over(4), kernel.Read(y.AsReadOnly()), kernel.ReadWrite(z)))
	require.Equal(t, y.String(), z.String())
}

// TestOrder: a launch starts after the pending work on its arrays, on the same and on other queues, and
// later work starts after it.
func TestOrder(t *testing.T) {
	rt, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "add")
	other := testenv.Opened(rt.NewQueue(q.Context(), q.Device(), syclobj.InOrder))(t)
	free, err := rt.NewQueue(q.Context(), q.Device(), syclobj.OutOfOrder) // out of order
	require.NoError(t, err)
	defer free.Close()
	r := resource(t, q, syclobj.USMDevice)
	for round := range 20 {
		x := testenv.Held(usmarray.New(r, usmarray.Int32, []int{1 << 14}))(t)
		require.NoError(t, x.Fill(round)) // left pending
		for i := range 12 {
			on := []*syclobj.Queue{q, other, free}[i%3]
			require.NoError(t, kernel.Launch(on, k, kernel.Over(x.Size()), kernel.ReadWrite(x), kernel.Scalar(int32(1<<i))))
		}
		for _, v := range testenv.Must(usmarray.ToSlice[int32](x))(t) {
			require.Equal(t, int32(round+1<<12-1), v)
		}
	}
}

func TestStartGivesAnEvent(t *testing.T) {
	rt, q := testsycl.Need(t)
	timed := testenv.Opened(rt.NewQueue(nil, q.Device(), syclobj.InOrder|syclobj.Profiling))(t)
	k := take(t, build(t, timed, source), "add")
	x := testenv.Held(usmarray.Zeros(resource(t, timed, syclobj.USMShared), usmarray.Int32, []int{64}))(t)
	e := testenv.Must(kernel.Start(timed, k, kernel.Over(64), kernel.ReadWrite(x), kernel.Scalar(int32(1))))(t)
	require.NoError(t, e.Wait(t.Context()))
	times := testenv.Must(e.Times())(t)
	require.LessOrEqual(t, times.Started, times.Ended)
	require.NoError(t, e.Close())

	e = testenv.Must(kernel.Start(timed, k, kernel.Over(4, 0), kernel.ReadWrite(x), kernel.Scalar(int32(1))))(t)
	require.True(t, e.Done(), "nothing to run")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, e.Wait(ended))
	require.Equal(t, int32(1), testenv.Must(x.At(63))(t))
}

// TestManyGoroutines launches one kernel from many goroutines, each with its own array and number:
// arguments are never mixed up.
func TestManyGoroutines(t *testing.T) {
	_, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "add")
	r := resource(t, q, syclobj.USMShared)
	testenv.Together(t, 16, func(g int) error {
		x, err := usmarray.Zeros(r, usmarray.Int32, []int{256})
		if err != nil {
			return err
		}
		defer x.Release()
		for range 50 {
			if err := kernel.Launch(q, k, kernel.Over(256), kernel.ReadWrite(x), kernel.Scalar(int32(g))); err != nil {
				return err
			}
		}
		got, err := usmarray.ToSlice[int32](x)
		if err == nil && !allAre(got, 256, int32(50*g)) {
			err = fmt.Errorf("goroutine %d: %d, want %d", g, got, 50*g)
		}
		return err
	})
}

// TestCloseDuringLaunches closes program, kernel and arrays during launches: each launch succeeds or
// returns ErrClosed.
func TestCloseDuringLaunches(t *testing.T) {
	_, q := testsycl.Need(t)
	p := testenv.Must(q.BuildOpenCL(source, ""))(t)
	for range 8 {
		k := testenv.Must(p.Kernel("add"))(t)
		x := testenv.Held(usmarray.Zeros(resource(t, q, syclobj.USMShared), usmarray.Int32, []int{8}))(t)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 30 {
					if err := kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.Scalar(int32(1))); err != nil && !errors.Is(err, syclobj.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		group.Go(func() { _ = k.Close() })
		group.Wait()
		require.NoError(t, x.Wait())
		require.ErrorIs(t, kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.Scalar(int32(1))), syclobj.ErrClosed)
	}
	k := testenv.Opened(p.Kernel("add"))(t)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, testenv.ErrorOf(p.Kernel("add")), syclobj.ErrClosed)
	x := testenv.Held(usmarray.Zeros(resource(t, q, syclobj.USMShared), usmarray.Int32, []int{8}))(t)
	require.NoError(t, kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.Scalar(int32(3))), "a kernel outlives its program")
	require.Equal(t, int32(3), testenv.Must(x.At(7))(t))
}

func TestLaunchAllocatesNothing(t *testing.T) {
	if instrumented {
		t.Skip("the race detector empties pools of objects at random, and the address sanitizer allocates what lies on stacks")
	}
	_, q := testsycl.Need(t)
	k := take(t, build(t, q, source), "scale")
	r := resource(t, q, syclobj.USMDevice)
	x := testenv.Held(usmarray.Zeros(r, usmarray.Float32, []int{64}))(t)
	y := testenv.Held(usmarray.Zeros(r, usmarray.Float32, []int{64}))(t)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if err := kernel.Launch(q, k, kernel.Over(64).By(8), kernel.Read(x), kernel.ReadWrite(y), kernel.Scalar(float32(2))); err != nil {
			t.Fatal(err)
		}
	}))
	require.NoError(t, y.Wait())
}
