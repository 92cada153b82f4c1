//go:build cgo && linux

package workers_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// usmModels compute with dpnp, which accepts USM only.
const usmModels = `
import dpnp, usmbridge
def kind(x): return [x.usm_type, x.readonly, x.interprocess]
def tripled(x, *, outputs):
    a = dpnp.from_dlpack(x)
    y = dpnp.from_dlpack(outputs["y"])
    dpnp.multiply(a, 3, out=y)
    return a.usm_type
def made(x): return dpnp.from_dlpack(x) + 1
def own(n):
    a = usmbridge.zeros(n, dtype="float32", usm_type="shared")
    a.fill(7)
    return a
`

// TestUSM checks that USM is USM of the same kind in the worker, and USM of this process again in the result. Only
// memory that other processes cannot map is copied.
func TestUSM(t *testing.T) {
	testpython.Need(t, "dpnp")
	q := testsycl.Queue(t)
	p := open(t, workers.Config{SYCL: q, Modules: []workers.Module{{Name: "usm", Source: usmModels}}})
	for _, kind := range []syclobj.USMKind{syclobj.USMShared, syclobj.USMHost, syclobj.USMDevice} {
		t.Run(kind.String(), func(t *testing.T) {
			r, err := segment.Default(q, kind, segment.PeersWrite)
			if err != nil {
				t.Skipf("no segments of USM here: %v", err)
			}
			in, out := p.Traffic()
			ctx := limited(t)
			x := testenv.Held(usmarray.Full(r, usmarray.Float32, []int{1000}, 2))(t)
			y := testenv.Held(usmarray.Zeros(r, usmarray.Float32, []int{1000}))(t)
			v := testenv.Must(p.Call(ctx, "usm:kind", x.AsReadOnly()))(t)
			require.Equal(t, []any{kind.String(), true, true}, v)
			v = testenv.Must(p.Call(ctx, "usm:tripled", x, python.Kwargs{"outputs": map[string]any{"y": y}}))(t)
			require.Equal(t, kind.String(), v)
			require.Equal(t, float32(6), floatsOf(t, y)[999])
			nowIn, nowOut := p.Traffic()
			require.Equal(t, workers.Traffic{Handles: in.Handles + 3}, nowIn)
			require.Equal(t, out, nowOut)

			v = testenv.Must(p.Call(ctx, "usm:made", x))(t)
			require.Equal(t, float32(3), floatsOf(t, v)[999])
			require.Equal(t, kind, v.(*usmarray.Array).Place().Kind())
			v.(*usmarray.Array).Release()
			_, nowOut = p.Traffic()
			require.Equal(t, workers.Traffic{Handles: out.Handles, Copies: out.Copies + 1, Bytes: out.Bytes + 4000}, nowOut)
		})
	}
	_, before := p.Traffic()
	v := testenv.Must(p.Call(limited(t), "usm:own", 3))(t)
	require.Equal(t, []float32{7, 7, 7}, floatsOf(t, v))
	_, after := p.Traffic()
	require.Equal(t, before.Copies, after.Copies, "new arrays travel by handle")
	require.Equal(t, syclobj.USMShared, v.(*usmarray.Array).Place().Kind())
	v.(*usmarray.Array).Release()

	private := testenv.Must(memmgr.Default(q, syclobj.USMShared))(t)
	x := testenv.Held(usmarray.Full(private, usmarray.Float32, []int{10}, 1))(t)
	v = testenv.Must(p.Call(limited(t), "usm:kind", x))(t)
	require.Equal(t, []any{"shared", true, "readonly"}, v, "by value, and USM all the same")

	// The worker has SYCL objects of dpnp that nothing deletes. Its end must not depend on them.
	require.NoError(t, p.Close(context.Background()))
	require.Equal(t, "exit status 0", p.Workers()[0].Last.Status)
}
