package kernel_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) {
	memtest.MainSYCL(m, func() error {
		if sharedRT == nil {
			return nil
		}
		return sharedRT.Close()
	})
}

var sharedRT *syclobj.Runtime

// needSYCL returns the runtime and the default queue of a real device. Without one it skips, or fails if a
// device is required.
func needSYCL(t testing.TB) (*syclobj.Runtime, *syclobj.Queue) {
	t.Helper()
	if sharedRT == nil {
		rt, err := syclobj.Open()
		require.NoError(t, err)
		sharedRT = rt
	}
	q := sharedRT.DefaultQueue()
	if q.IsHost() {
		if os.Getenv("USMBRIDGE_REQUIRE_SYCL") == "1" {
			t.Fatalf("USMBRIDGE_REQUIRE_SYCL=1 and there is no SYCL device: %v", sharedRT.SYCLError())
		}
		t.Skipf("no SYCL device: %v", sharedRT.SYCLError())
	}
	return sharedRT, q
}

// build compiles OpenCL C and closes the program after the test.
func build(t testing.TB, q *syclobj.Queue, text string) *syclobj.Program {
	t.Helper()
	p, err := q.BuildOpenCL(text, "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// take takes a kernel and closes it after the test.
func take(t testing.TB, p *syclobj.Program, name string) *syclobj.Kernel {
	t.Helper()
	k, err := p.Kernel(name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k
}

// resource is the default pool of a kind on a queue.
func resource(t testing.TB, q *syclobj.Queue, kind syclobj.USMKind) memmgr.Resource {
	t.Helper()
	r, err := memmgr.Default(q, kind)
	require.NoError(t, err)
	return r
}

// own releases an array after the test.
func own(t testing.TB) func(*usmarray.Array, error) *usmarray.Array {
	return func(a *usmarray.Array, err error) *usmarray.Array {
		t.Helper()
		require.NoError(t, err)
		t.Cleanup(a.Release)
		return a
	}
}

// usm is USM without a pool, closed after the test.
func usm(t testing.TB, q *syclobj.Queue, kind syclobj.USMKind) memmgr.Resource {
	t.Helper()
	r := memmgr.USM(q, kind)
	if c, ok := r.(interface{ Close() error }); ok {
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
	return r
}
