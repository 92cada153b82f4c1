package kernel_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
	"github.com/usmbridge/usmbridge/usmarray/kernel"
)

// addModule returns the SPIR-V 1.0 of: kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
func addModule(t *testing.T) []byte {
	t.Helper()
	return testenv.Must(os.ReadFile("testdata/add.bin"))(t)
}

func TestSPIRV(t *testing.T) {
	_, q := testsycl.Need(t)
	p := testenv.Opened(q.BuildSPIRV(addModule(t), ""))(t)
	k := take(t, p, "add")
	require.Len(t, k.Params(), 2)
	x := testenv.Held(usmarray.Arange[int32](resource(t, q, syclobj.USMDevice), 0, 1, 8))(t)
	require.NoError(t, kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.Scalar(int32(5))))
	require.Equal(t, "[ 5  6  7  8  9 10 11 12]", x.String())

	err := kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.Scalar(float64(5)))
	require.ErrorIs(t, err, syclobj.ErrArgument, "the module says what it takes, where the driver does not")
	require.ErrorContains(t, err, "a value of 4 bytes")
	require.ErrorIs(t, kernel.Launch(q, k, kernel.Over(8), kernel.Scalar(int64(1)), kernel.Scalar(int32(5))), syclobj.ErrArgument)
	require.ErrorIs(t, kernel.Launch(q, k, kernel.Over(8), kernel.ReadWrite(x), kernel.ReadWrite(x)), syclobj.ErrArgument)
	require.Equal(t, []string{"global", "private"}, []string{k.Params()[0].Address, k.Params()[1].Address})
	require.ErrorContains(t, testenv.ErrorOf(p.Kernel("sub")), "no kernel sub; its kernels are add")
	require.ErrorIs(t, testenv.ErrorOf(q.BuildSPIRV(addModule(t)[:92], "")), syclobj.ErrArgument)
}

// TestSPIRVOfACompiler uses a module of dpctl's own tests, if its package contains them.
func TestSPIRVOfACompiler(t *testing.T) {
	_, q := testsycl.Need(t)
	found := testenv.Must(filepath.Glob(filepath.Join(os.Getenv("VIRTUAL_ENV"), "lib", "python3*", "site-packages", "dpctl", "tests", "input_files", "multi_kernel.spv")))(t)
	if len(found) == 0 {
		testenv.Missing(t, "dpctl has no multi_kernel.spv", testenv.Peers)
	}
	module := testenv.Must(os.ReadFile(found[0]))(t)
	p := testenv.Opened(q.BuildSPIRV(module, ""))(t)
	k := take(t, p, "add") // kernel void add(global int *a, global int *b, global int *c)
	r := resource(t, q, syclobj.USMShared)
	a, b, c := testenv.Held(usmarray.Arange[int32](r, 0, 1, 16))(t), testenv.Held(usmarray.Arange[int32](r, 0, 10, 16))(t), testenv.Held(usmarray.Zeros(r, usmarray.Int32, []int{16}))(t)
	require.NoError(t, kernel.Launch(q, k, kernel.Over(16), kernel.ReadWrite(a), kernel.ReadWrite(b), kernel.ReadWrite(c)))
	for i, v := range testenv.Must(usmarray.ToSlice[int32](c))(t) {
		require.Equal(t, int32(11*i), v)
	}
}
