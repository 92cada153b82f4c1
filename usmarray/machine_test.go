package usmarray

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// onMachine runs f with a runtime on a fake machine.
func onMachine(t *testing.T, m sycltest.Machine, f func(*sycltest.Fake, *syclobj.Runtime)) {
	t.Helper()
	sycltest.Child(t, m, func(fake *sycltest.Fake) { f(fake, testenv.Opened(syclobj.Open(syclobj.RequireSYCL()))(t)) })
}

func queueOn(t *testing.T, rt *syclobj.Runtime, ctx *syclobj.Context, d *syclobj.Device) *syclobj.Queue {
	t.Helper()
	return testenv.Opened(rt.NewQueue(ctx, d, syclobj.InOrder))(t)
}

func device(t *testing.T, rt *syclobj.Runtime, filter string) *syclobj.Device {
	t.Helper()
	return testenv.Must(rt.Device(filter))(t)
}

var usmKinds = []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared, syclobj.USMHost}

// TestMachineSecondGPU: memory of every device passes through both protocols and is imported on its own
// device.
func TestMachineSecondGPU(t *testing.T) {
	onMachine(t, sycltest.CPUFirst, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		var first *syclobj.Place
		for id, filter := range []string{"opencl:cpu:0", "level_zero:gpu:0", "level_zero:gpu:1"} {
			d := device(t, rt, filter)
			q := queueOn(t, rt, nil, d)
			for _, k := range usmKinds {
				a := testenv.Held(Arange[int32](testsycl.USM(t, q, k), 0, 1, 24))(t)
				for _, v := range views(t, a) {
					x := testenv.Must(v.DLPack())(t)
					require.Equal(t, dlpack.OneAPI(int32(id)), x.Device())
					b := testenv.Held(FromDLPack(rt, x))(t)
					if k == syclobj.USMHost && id == 1 {
						first = v.Place()
					}
					require.Same(t, v.Place(), b.Place())
					require.Equal(t, elements(t, v), elements(t, b))
					for _, form := range []syclForm{filterForm, contextForm, queueForm} {
						dict := testenv.Must(interfaceAs(v, form))(t)
						if form == filterForm {
							require.Equal(t, filter, dict.SyclObj.Filter)
						}
						c := testenv.Held(FromUSMInterface(rt, &dict, nil))(t)
						want := v.Place()
						if k == syclobj.USMHost && id == 2 && form == contextForm {
							want = first // SYCL reports the first device of the context for host USM
						}
						require.Same(t, want, c.Place())
						require.Equal(t, addressOf(v), addressOf(c))
					}
				}
			}
		}
	})
}

// TestMachineWrongDevice: the device in a dictionary or a tensor must be the runtime's device of the
// pointer.
func TestMachineWrongDevice(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		gpu, cpu := device(t, rt, "gpu:1"), device(t, rt, "cpu")
		a := testenv.Held(Arange[int32](testsycl.USM(t, queueOn(t, rt, nil, gpu), syclobj.USMDevice), 0, 1, 4))(t)
		d := testenv.Must(a.USMInterface())(t)
		d.SyclObj = SyclObj{Filter: "opencl:cpu:0"}
		require.ErrorIs(t, testenv.ErrorOf(FromUSMInterface(rt, &d, nil)), ErrNotUSM)
		d.SyclObj = SyclObj{Context: cpu.DefaultContext()}
		require.ErrorIs(t, testenv.ErrorOf(FromUSMInterface(rt, &d, nil)), ErrNotUSM)
		// The other GPU shares the context: the pointer decides the device.
		d.SyclObj = SyclObj{Filter: "level_zero:gpu:0"}
		b := testenv.Held(FromUSMInterface(rt, &d, nil))(t)
		require.Same(t, a.Place(), b.Place())
		for _, c := range []struct {
			id   int32
			ok   bool
			want error
		}{{0, true, nil}, {1, true, nil}, {2, false, syclobj.ErrNotUSM}, {3, false, syclobj.ErrDeviceID}} {
			x := testenv.Must(dlpack.Export(&dlpack.View{Data: a.Pointer(), Device: dlpack.OneAPI(c.id), DataType: Int32, Shape: []int64{4}}, 0, true, dlpack.Owner{}))(t)
			b, err := FromDLPack(rt, x)
			if !c.ok {
				require.ErrorIs(t, err, ErrExchange)
				require.ErrorIs(t, err, c.want)
				x.Release()
				continue
			}
			require.NoError(t, err)
			require.Same(t, a.Place(), b.Place())
			require.Equal(t, dlpack.OneAPI(1), testenv.Must(b.DLDevice())(t))
			b.Release()
		}
	})
}

// TestMachineTile: memory of a tile in the platform's default context is exported under its root device,
// and imported on the device that the runtime returns.
func TestMachineTile(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := device(t, rt, "gpu:1")
		tiles := testenv.Must(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNextPartitionable}))(t)
		for _, tile := range tiles {
			t.Cleanup(func() { require.NoError(t, tile.Close()) })
		}
		q := queueOn(t, rt, gpu.DefaultContext(), tiles[1])
		for _, k := range usmKinds {
			a := testenv.Held(Arange[float32](testsycl.USM(t, q, k), 0, 1, 6))(t)
			require.True(t, testenv.Must(a.Place().Device())(t).IsSubDevice())
			x := testenv.Must(a.DLPack())(t)
			require.Equal(t, dlpack.OneAPI(1), x.Device())
			require.Equal(t, "[0. 1. 2. 3. 4. 5.]", testenv.Held(FromDLPack(rt, x))(t).String())
			for _, form := range []syclForm{defaultForm, filterForm, contextForm, queueForm} {
				d := testenv.Must(interfaceAs(a, form))(t)
				require.Equal(t, addressOf(a), addressOf(testenv.Held(FromUSMInterface(rt, &d, nil))(t)))
			}
		}
	})
}

// TestMachineContextOfTwo: SUAI works for both GPUs of a context; DLPack refuses the context, because it
// is not the default one, and suggests a copy.
func TestMachineContextOfTwo(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		t.Cleanup(func() { // closes the memory of the copies after the arrays
			memmgr.Flush()
			require.NoError(t, memmgr.CloseDefaults())
		})
		a, b := device(t, rt, "gpu:0"), device(t, rt, "gpu:1")
		both := testenv.Opened(rt.NewContext(a, b))(t)
		for _, d := range []*syclobj.Device{a, b} {
			q := queueOn(t, rt, both, d)
			arr := testenv.Held(Arange[int64](testsycl.USM(t, q, syclobj.USMDevice), 0, 1, 5))(t)
			for _, obj := range []SyclObj{{Context: both}, {Queue: q}, {Queue: queueOn(t, rt, both, a)}} {
				dict := testenv.Must(arr.USMInterface())(t)
				dict.SyclObj = obj
				c := testenv.Held(FromUSMInterface(rt, &dict, nil))(t)
				require.Same(t, arr.Place(), c.Place())
				require.True(t, testenv.Must(c.Place().Device())(t).Equal(d))
			}
			testenv.Failed(t, testenv.ErrorOf(arr.DLPack()), syclobj.ErrNotDefault, "CopyAlways")
			x := testenv.Must(arr.DLPackWith(ExportOptions{Copy: CopyAlways}))(t)
			require.Equal(t, dlpack.OneAPI(testenv.Must(d.DLPackID())(t)), x.Device())
			require.Equal(t, "[0 1 2 3 4]", testenv.Held(FromDLPack(rt, x))(t).String())
		}
	})
}

// TestMachineCopies: strided and contiguous copies between host memory and each kind on two GPUs of one
// platform, on a CPU of another, and in a separate context.
func TestMachineCopies(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := device(t, rt, "gpu:0")
		ctx := testenv.Opened(rt.NewContext(gpu))(t)
		all := []backend{{"host", memmgr.Host()}}
		for _, q := range []*syclobj.Queue{
			queueOn(t, rt, nil, gpu), queueOn(t, rt, nil, device(t, rt, "gpu:1")),
			queueOn(t, rt, nil, device(t, rt, "cpu")), queueOn(t, rt, ctx, gpu),
		} {
			for _, k := range usmKinds {
				all = append(all, backend{k.String() + " on " + q.Device().FilterString(), testsycl.USM(t, q, k)})
			}
		}
		for _, from := range all {
			src := testenv.Held(Arange[int16](from.r, 0, 1, 60))(t)
			m := testenv.Must(src.Reshape(6, 10))(t)
			strided := testenv.Must(m.Index(All.By(-2), IndexRange(1, 9).By(3)))(t)
			for _, to := range all {
				dst := testenv.Held(Zeros(to.r, Int16, []int{6, 10}))(t)
				require.NoError(t, dst.CopyFrom(m), "%s to %s", from.name, to.name)
				require.Equal(t, elements(t, m), elements(t, dst))
				v := testenv.Must(dst.Index(IndexRange(0, 3), IndexTo(6).By(2)))(t)
				require.NoError(t, v.CopyFrom(strided))
				require.Equal(t, elements(t, strided), elements(t, v), "%s to %s", from.name, to.name)
				require.Equal(t, int16(1), testenv.Must(dst.At(0, 1))(t), "gaps stay")
			}
		}
	})
}

// TestMachinePending: an export waits for pending work, submits a barrier on the consumer's queue, or does
// neither, depending on the options.
func TestMachinePending(t *testing.T) {
	onMachine(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		gpu := device(t, rt, "gpu:0")
		q, consumer := queueOn(t, rt, nil, gpu), queueOn(t, rt, nil, gpu)
		a := testenv.Held(New(testsycl.USM(t, q, syclobj.USMDevice), Int32, []int{16}))(t)
		fake.Hold(true)
		require.NoError(t, a.Fill(5))
		t.Cleanup(func() { fake.Hold(false); fake.ReleaseAll() })
		require.True(t, a.Buffer().Pending())
		x := testenv.Must(a.DLPackWith(ExportOptions{NoSync: true}))(t)
		require.True(t, a.Buffer().Pending())
		x.Release()
		barriers := fake.Calls("DPCTLQueue_SubmitBarrierForEvents")
		x = testenv.Must(a.DLPackWith(ExportOptions{OnQueue: consumer}))(t)
		require.Greater(t, fake.Calls("DPCTLQueue_SubmitBarrierForEvents"), barriers, "one by the export; memmgr may add its own for the new queue")
		require.True(t, a.Buffer().Pending(), "the host did not wait")
		x.Release()
		ev := a.PendingEvent()
		require.False(t, ev.Done())
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorIs(t, ev.Wait(cancelled), context.Canceled)
		require.ErrorIs(t, a.Synchronize(cancelled), context.Canceled)
		fake.Hold(false)
		fake.ReleaseAll()
		require.NoError(t, ev.Wait(context.Background()))
		d := testenv.Must(a.USMInterface())(t)
		require.False(t, a.Buffer().Pending())
		require.Equal(t, "[5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5]", testenv.Held(FromUSMInterface(rt, &d, nil))(t).String())
	})
}

// TestMachineXPU: PyTorch's numbers are those of the GPUs of one platform.
func TestMachineXPU(t *testing.T) {
	onMachine(t, sycltest.CPUFirst, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		all := XPUDevices(rt)
		require.Len(t, all, 2)
		for n, d := range all {
			require.Equal(t, int32(n+1), testenv.Must(d.DLPackID())(t), "the CPU comes first in the runtime's list")
		}

		gpu := device(t, rt, "gpu:1")
		q := queueOn(t, rt, nil, gpu)
		a := testenv.Held(Arange[float32](testsycl.USM(t, q, syclobj.USMDevice), 0, 1, 4))(t)
		x := testenv.Must(a.DLPackWith(ExportOptions{XPU: true}))(t)
		require.Equal(t, dlpack.OneAPI(2), x.Device())
		require.NoError(t, testenv.Held(FromXPU(rt, x))(t).Synchronize(context.Background()))
		ctx := testenv.Opened(rt.NewContext(gpu))(t)
		for name, c := range map[string]*Array{
			"shared": testenv.Held(Zeros(testsycl.USM(t, q, syclobj.USMShared), Float32, []int{1}))(t),
			"host":   testenv.Held(Zeros(testsycl.USM(t, q, syclobj.USMHost), Float32, []int{1}))(t),
			"plain":  testenv.Held(Zeros(memmgr.Host(), Float32, []int{1}))(t),
			"own":    testenv.Held(Zeros(testsycl.USM(t, queueOn(t, rt, ctx, gpu), syclobj.USMDevice), Float32, []int{1}))(t),
		} {
			require.ErrorIs(t, testenv.ErrorOf(c.DLPackWith(ExportOptions{XPU: true})), ErrExchange, name)
		}
	})
}

// TestMachineNewOn allocates by all forms of syclobj: on GPUs, a tile, a
// context over two devices, in-order and profiling queues.
func TestMachineNewOn(t *testing.T) {
	onMachine(t, sycltest.CPUFirst, func(_ *sycltest.Fake, rt *syclobj.Runtime) {
		t.Cleanup(func() {
			memmgr.Flush()
			require.NoError(t, memmgr.CloseDefaults())
		})
		a, b := device(t, rt, "gpu:0"), device(t, rt, "gpu:1")
		tiles := testenv.Must(b.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNextPartitionable}))(t)
		for _, tile := range tiles {
			t.Cleanup(func() { require.NoError(t, tile.Close()) })
		}
		both := testenv.Opened(rt.NewContext(a, b))(t)
		profiling := testenv.Opened(rt.NewQueue(both, b, syclobj.Profiling))(t)
		onTile := queueOn(t, rt, b.DefaultContext(), tiles[0])
		for name, c := range map[string]struct {
			obj SyclObj
			dev *syclobj.Device
		}{
			"filter":             {SyclObj{Filter: "level_zero:gpu:1"}, b},
			"default context":    {SyclObj{Context: a.DefaultContext()}, a},
			"context of two":     {SyclObj{Context: both}, a},
			"queue":              {SyclObj{Queue: queueOn(t, rt, nil, b)}, b},
			"profiling queue":    {SyclObj{Queue: profiling}, b},
			"tile":               {SyclObj{Queue: onTile}, tiles[0]},
			"the host's backend": {SyclObj{Filter: "host"}, rt.HostQueue().Device()},
		} {
			obj := c.obj
			for _, k := range usmKinds {
				x, err := newOn(rt, obj, k, Int32, []int{4})
				require.NoError(t, err, name)
				dev := testenv.Must(x.Place().Device())(t)
				require.True(t, dev.Equal(c.dev), "%s: %v, want %v", name, dev, c.dev)
				require.NoError(t, x.Fill(3))
				require.Equal(t, "[3 3 3 3]", x.String())
				if !c.dev.IsHost() {
					require.Equal(t, k, x.Place().Kind())
				}
				x.Release()
			}
		}
		require.ErrorIs(t, testenv.ErrorOf(newOn(rt, SyclObj{}, syclobj.USMShared, Int32, nil)), ErrInterface)
		require.ErrorIs(t, testenv.ErrorOf(newOn(rt, SyclObj{Filter: "cuda"}, syclobj.USMShared, Int32, nil)), syclobj.ErrNoDevice)
	})
}

// TestZerosAfterWorkOfTheFormerUser: memory that is reused on a queue with unfinished work of its former
// user is cleared after that work, from the host and from another queue too.
func TestZerosAfterWorkOfTheFormerUser(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		d := device(t, rt, "opencl:cpu:0")
		q := queueOn(t, rt, nil, d) // not the one that the memory is copied on
		for _, k := range usmKinds {
			pool := memmgr.NewPool(testsycl.USM(t, q, k))
			x := testenv.Must(New(pool, Int32, []int{16}, WithQueue(q)))(t)
			at := x.Pointer()
			fake.Hold(true)
			ev := testenv.Must(q.Memset(at, 7, 64))(t)
			require.NoError(t, x.Buffer().SetPending(q, ev))
			require.NoError(t, ev.Close())
			x.Release()
			made := make(chan *Array)
			go func() {
				y, err := Zeros(pool, Int32, []int{16}, WithQueue(q))
				if err != nil {
					t.Error(err)
				}
				made <- y
			}()
			var y *Array
			select {
			case y = <-made:
			case <-time.After(50 * time.Millisecond): // it waits
			}
			fake.Release(1) // the later work, if the order permits
			fake.Hold(false)
			fake.ReleaseAll()
			if y == nil {
				y = <-made
			}
			require.Equal(t, at, y.Pointer(), "the memory was not reused")
			require.Equal(t, make([]int32, 16), testenv.Must(ToSlice[int32](y))(t), "%v memory", k)
			y.Release()
			require.NoError(t, pool.Close())
		}
	})
}

// TestNewMemoryAndPendingWork: only New WithQueue returns memory with pending work of its former user, and Wait waits
// for that. Without WithQueue the memory is other memory, or none below a limit.
func TestNewMemoryAndPendingWork(t *testing.T) {
	onMachine(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		q := queueOn(t, rt, nil, device(t, rt, "opencl:cpu:0"))
		const bytes = 2 << 20 // a whole segment
		for _, kind := range usmKinds {
			for _, limit := range []uint64{0, bytes} {
				pool := memmgr.NewPool(testsycl.USM(t, q, kind), memmgr.WithLimit(limit))
				tenant := testenv.Must(pool.NewTenant("tenant", memmgr.TenantOptions{}))(t)
				for _, from := range []memmgr.Resource{pool, tenant} {
					x := testenv.Must(New(from, Uint8, []int{bytes}))(t)
					at := x.Pointer()
					fake.Hold(true)
					ev := testenv.Must(q.Memset(at, 7, bytes))(t)
					require.NoError(t, x.Buffer().SetPending(q, ev))
					require.NoError(t, ev.Close())
					x.Release()
					y, err := New(from, Uint8, []int{bytes})
					if limit != 0 {
						require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
					} else {
						require.NoError(t, err)
						require.NotEqual(t, at, y.Pointer())
						require.NoError(t, y.Wait()) // nothing is pending
						y.Release()
					}
					z := testenv.Must(New(from, Uint8, []int{bytes}, WithQueue(q)))(t)
					require.Equal(t, at, z.Pointer())
					waited := make(chan error, 1)
					go func() { waited <- z.Wait() }()
					select {
					case err := <-waited:
						waited <- err
						t.Error("Wait did not wait for the work of the former user")
					case <-time.After(20 * time.Millisecond):
					}
					fake.Hold(false)
					fake.ReleaseAll()
					require.NoError(t, <-waited)
					z.Release()
					pool.Trim(0)
				}
				require.NoError(t, pool.Close())
			}
		}
	})
}
