package metrics

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

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

// OpenTelemetry's reader gets the instruments, and none after the registration was unregistered.
func TestOpenTelemetry(t *testing.T) {
	busyPool(t, "one")
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	registration := testenv.Must(Observe(provider.Meter("usmbridge")))(t)
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &data))
	found := map[string]int64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			found[m.Name] = sum.DataPoints[0].Value
			hw, _ := sum.DataPoints[0].Attributes.Value("hw.type")
			require.Equal(t, "memory", hw.AsString())
		}
	}
	require.EqualValues(t, 2, found["usmbridge.memory.buffers"])
	require.EqualValues(t, 3, found["usmbridge.memory.allocations"])
	require.Positive(t, found["hw.gpu.memory.usage"])
	require.NotContains(t, found, "hw.gpu.memory.limit", "host memory belongs to no device")
	require.NoError(t, registration.Unregister())
	data = metricdata.ResourceMetrics{}
	require.NoError(t, reader.Collect(context.Background(), &data))
	require.Empty(t, data.ScopeMetrics)
	require.NoError(t, provider.Shutdown(context.Background()))
}
