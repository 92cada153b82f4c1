package metrics

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
)

func TestMain(m *testing.M) {
	workers.Main()
	os.Exit(m.Run())
}

// The open tenants have series of their own; those of one name in pools of one name are added up.
func TestTenants(t *testing.T) {
	for range 2 {
		p := memmgr.NewPool(memmgr.Host(), memmgr.WithName("shared"))
		tenant := testenv.Must(p.NewTenant("a", memmgr.TenantOptions{Hard: 1 << 20}))(t)
		closed := testenv.Must(p.NewTenant("closed", memmgr.TenantOptions{}))(t)
		require.NoError(t, closed.Close())
		b := testenv.Must(memmgr.New(tenant, memmgr.Request{Size: 1000}))(t)
		require.ErrorIs(t, testenv.ErrorOf(memmgr.New(tenant, memmgr.Request{Size: 2 << 20})), memmgr.ErrOutOfMemory)
		t.Cleanup(func() {
			b.Release()
			require.NoError(t, tenant.Close())
			require.NoError(t, p.Close())
		})
	}
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(NewCollector(Tenants())))
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP usmbridge_tenant_memory_requested_bytes Requested bytes of the tenant's buffers in use.
# TYPE usmbridge_tenant_memory_requested_bytes gauge
usmbridge_tenant_memory_requested_bytes{place="host memory",pool="shared",tenant="a"} 2000
# HELP usmbridge_tenant_refusals_total Requests of the tenant that failed because memory was missing.
# TYPE usmbridge_tenant_refusals_total counter
usmbridge_tenant_refusals_total{place="host memory",pool="shared",tenant="a"} 2
`), "usmbridge_tenant_memory_requested_bytes", "usmbridge_tenant_refusals_total"))
	require.Empty(t, testenv.Must(testutil.GatherAndLint(reg))(t))
}

// fakeRunner is a runner with fixed counters.
type fakeRunner struct{ executor.Runner }

func (fakeRunner) Stats() executor.Stats {
	return executor.Stats{Slots: 2, Running: 1, Calls: 7, Failed: 3, Oldest: 1500 * time.Millisecond}
}

// The counters of a runner carry its name.
func TestRunner(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(NewCollector(Runner("models", fakeRunner{}))))
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP usmbridge_runner_calls_total Completed calls.
# TYPE usmbridge_runner_calls_total counter
usmbridge_runner_calls_total{runner="models"} 7
# HELP usmbridge_runner_oldest_seconds Age of the oldest running call.
# TYPE usmbridge_runner_oldest_seconds gauge
usmbridge_runner_oldest_seconds{runner="models"} 1.5
`), "usmbridge_runner_calls_total", "usmbridge_runner_oldest_seconds", "usmbridge_worker_ready"))
}

// A pool of workers also exports the state of each worker and the arrays that it sent.
func TestWorkers(t *testing.T) {
	testpython.Need(t)
	pool := testenv.Must(workers.New(workers.Config{Modules: []workers.Module{{Name: "models", Source: "def add(x): return x + 1"}}}))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	require.NoError(t, pool.Ready(ctx))
	require.NoError(t, testenv.ErrorOf(pool.Call(ctx, "models:add", 1)))
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(NewCollector(Runner("models", pool))))
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP usmbridge_worker_arrays_by_handle_total Arrays sent by handle, without a copy.
# TYPE usmbridge_worker_arrays_by_handle_total counter
usmbridge_worker_arrays_by_handle_total{direction="arguments",runner="models"} 0
usmbridge_worker_arrays_by_handle_total{direction="results",runner="models"} 0
# HELP usmbridge_worker_calls_total Completed calls of the worker, in all its processes.
# TYPE usmbridge_worker_calls_total counter
usmbridge_worker_calls_total{runner="models",worker="0"} 1
# HELP usmbridge_worker_ready 1 if the worker takes calls, else 0.
# TYPE usmbridge_worker_ready gauge
usmbridge_worker_ready{runner="models",worker="0"} 1
`), "usmbridge_worker_calls_total", "usmbridge_worker_ready", "usmbridge_worker_arrays_by_handle_total"))
	require.Empty(t, testenv.Must(testutil.GatherAndLint(reg))(t))
	require.NoError(t, pool.Close(ctx))
}
