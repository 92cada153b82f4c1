package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// busyPool makes a pool with three buffers of 1000 bytes, two of them in use.
func busyPool(t *testing.T, name string) {
	t.Helper()
	p := memmgr.NewPool(memmgr.Host(), memmgr.WithName(name))
	var held []memmgr.Buffer
	for range 3 {
		b := testenv.Must(memmgr.New(p, memmgr.Request{Size: 1000}))(t)
		held = append(held, b)
	}
	held[0].Release()
	t.Cleanup(func() {
		held[1].Release()
		held[2].Release()
		require.NoError(t, p.Close())
	})
}

// Prometheus reads the counters of the pools; those of pools with one name are added up.
func TestPrometheus(t *testing.T) {
	busyPool(t, "one")
	busyPool(t, "two")
	busyPool(t, "two")
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(NewCollector()))
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP usmbridge_memory_buffers Buffers in use.
# TYPE usmbridge_memory_buffers gauge
usmbridge_memory_buffers{place="host memory",pool="one"} 2
usmbridge_memory_buffers{place="host memory",pool="two"} 4
# HELP usmbridge_memory_allocations_total Allocations.
# TYPE usmbridge_memory_allocations_total counter
usmbridge_memory_allocations_total{place="host memory",pool="one"} 3
usmbridge_memory_allocations_total{place="host memory",pool="two"} 6
# HELP usmbridge_memory_requested_bytes Requested bytes of the buffers in use.
# TYPE usmbridge_memory_requested_bytes gauge
usmbridge_memory_requested_bytes{place="host memory",pool="one"} 2000
usmbridge_memory_requested_bytes{place="host memory",pool="two"} 4000
`), "usmbridge_memory_buffers", "usmbridge_memory_allocations_total", "usmbridge_memory_requested_bytes"))
	require.Empty(t, testenv.Must(testutil.GatherAndLint(reg))(t))
}

// A name that is not UTF-8 does not fail the scrape, and neither do names that differ only in such bytes.
func TestNamesThatAreNotUTF8(t *testing.T) {
	for name, pools := range map[string][]string{
		"one pool": {"Caf\xe9"}, "two of one series": {"Caf\xe9", "Caf\xea"}, "beside others": {"Café", "Caf\xff", "\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string]bool{}
			for _, n := range pools {
				p := memmgr.NewPool(memmgr.Host(), memmgr.WithName(n))
				defer func() { require.NoError(t, p.Close()) }()
				tenant := testenv.Must(p.NewTenant(n, memmgr.TenantOptions{}))(t)
				defer func() { require.NoError(t, tenant.Close()) }()
				want[label(n)] = true
			}
			reg := prometheus.NewPedanticRegistry()
			reg.MustRegister(NewCollector(Tenants(), Runner("Caf\xe9", fakeRunner{})))
			require.Equal(t, len(want), testenv.Must(testutil.GatherAndCount(reg, "usmbridge_memory_buffers"))(t))
			require.Equal(t, len(want), testenv.Must(testutil.GatherAndCount(reg, "usmbridge_tenant_waiting"))(t))
		})
	}
}

// The page for Prometheus contains the histograms.
func TestPrometheusPage(t *testing.T) {
	busyPool(t, "one")
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewCollector())
	page := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	require.Contains(t, page.Body.String(), `usmbridge_memory_allocation_seconds_count{place="host memory",pool="one"} 3`)
	require.Contains(t, page.Body.String(), `usmbridge_memory_upstream_seconds_count{place="host memory",pool="one"} 1`)
	require.Contains(t, page.Body.String(), `usmbridge_memory_allocation_seconds_bucket{place="host memory",pool="one",le="+Inf"} 3`)
}
