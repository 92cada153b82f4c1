package transfer

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
	"github.com/usmbridge/usmbridge/usmarray"
)

// gpus is a simulated machine. Access of the host to its device memory ends the process. The second GPU does
// not support host USM.
var gpus = sycltest.Machine{{Backend: syclobj.BackendLevelZero, Name: "Fake Level Zero", Devices: []sycltest.Device{
	{Type: syclobj.TypeGPU, Name: "Fake GPU A"},
	{Type: syclobj.TypeGPU, Name: "Fake GPU B", Lacks: []syclobj.USMKind{syclobj.USMHost}},
}}}

// deviceMemory returns a pool of device memory. After the test it must be empty.
func deviceMemory(t *testing.T, filter string) *memmgr.Pool {
	t.Helper()
	rt := testenv.Must(syclobj.Open(syclobj.RequireSYCL()))(t)
	d := testenv.Must(rt.Device(filter))(t)
	q := testenv.Must(d.DefaultQueue())(t)
	upstream := memmgr.USM(q, syclobj.USMDevice)
	pool := memmgr.NewPool(upstream)
	t.Cleanup(func() {
		memmgr.Flush()
		require.Zero(t, pool.Stats().ActiveBytes.Current)
		require.NoError(t, pool.Close())
		require.NoError(t, memmgr.Close(upstream))
		require.NoError(t, memmgr.CloseDefaults())
		require.NoError(t, rt.Close())
	})
	return pool
}

// bytesFile returns n bytes, a source of them, and the wish that reads them.
func bytesFile(t *testing.T, n int) ([]byte, *Source, []Wish) {
	t.Helper()
	file := noise(n)
	src := testenv.Must(FromReaderAt(bytes.NewReader(file), int64(n)))(t)
	return file, src, []Wish{{&Elements{DataType: usmarray.Uint8, Shape: []int{n}}, Whole}}
}

// TestMachineDeviceMemory checks that device memory is read and written through the ring.
func TestMachineDeviceMemory(t *testing.T) {
	sycltest.Child(t, gpus, func(fake *sycltest.Fake) {
		for _, filter := range []string{"gpu:0", "gpu:1"} {
			t.Run(filter, func(t *testing.T) {
				pool := deviceMemory(t, filter)
				file, src, wishes := bytesFile(t, 14<<20+7)
				arrays := testenv.Must(ReadNew(context.Background(), src, wishes, pool, Options{Workers: 4}))(t)
				defer arrays[0].Release()
				c := testenv.Must(NewContent(arrays[0], false, 0))(t)
				var out bytes.Buffer
				require.NoError(t, c.WriteTo(context.Background(), &out))
				require.True(t, bytes.Equal(file, out.Bytes()))
			})
		}
	})
}

// TestMachinePackedRows checks that reads into device memory keep the bits of adjacent elements.
func TestMachinePackedRows(t *testing.T) {
	sycltest.Child(t, gpus, func(fake *sycltest.Fake) {
		for _, filter := range []string{"gpu:0", "gpu:1"} {
			t.Run(filter, func(t *testing.T) { packedRows(t, deviceMemory(t, filter)) })
		}
	})
}

// TestMachineFailures checks that the transfer returns an error and releases all memory if a copy cannot be
// submitted or fails later.
func TestMachineFailures(t *testing.T) {
	sycltest.Child(t, gpus, func(fake *sycltest.Fake) {
		pool := deviceMemory(t, "gpu:0")
		_, src, wishes := bytesFile(t, 5<<20)
		whole := testenv.Must(ReadNew(context.Background(), src, wishes, pool, Options{}))(t)
		defer whole[0].Release()
		c := testenv.Must(NewContent(whole[0], false, 0))(t)
		for n := 1; n <= 5; n++ {
			for name, fail := range map[string]func(){
				"refused": func() { fake.Fail("DPCTLQueue_Memcpy", n) },
				"later":   func() { fake.AsyncError(n, 1) },
			} {
				fail()
				require.Error(t, testenv.ErrorOf(ReadNew(context.Background(), src, wishes, pool, Options{Workers: 2})), "read, %s, %d", name, n)
				fail()
				require.Error(t, c.WriteTo(context.Background(), &bytes.Buffer{}), "write, %s, %d", name, n)
			}
		}
	})
}

// TestMachineCancelled ends the context while the device has not completed the copies. The call must return,
// and the memory of the copies must not be reused until they complete.
func TestMachineCancelled(t *testing.T) {
	sycltest.Child(t, gpus, func(fake *sycltest.Fake) {
		pool := deviceMemory(t, "gpu:0")
		_, src, wishes := bytesFile(t, 20<<20)
		fake.Hold(true)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			_, err := ReadNew(ctx, src, wishes, pool, Options{Workers: 2})
			ended <- err
		}()
		require.Eventually(t, func() bool { return fake.Pending() > 0 }, time.Minute, time.Millisecond)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Positive(t, pool.Stats().ActiveBytes.Current, "the device still writes to it")
		require.Zero(t, pool.Stats().AllocatedBytes.Current, "the memory is not allocated again")
		fake.Hold(false)
		fake.ReleaseAll()
		memmgr.Flush()
		require.Zero(t, pool.Stats().ActiveBytes.Current)
	})
}
