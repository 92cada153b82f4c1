package admin

import (
	"math"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/metrics"
)

// serveMetrics serves the metrics of the engine, the pools, the calls of Python, the Go runtime and the
// process.
func serveMetrics(e *engine.Engine) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collector{e},
		// Without the old names of the memory statistics, of which two differ in _total alone, so
		// that readers of OpenMetrics refuse the whole answer.
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled(),
			collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC, collectors.MetricsMemory, collectors.MetricsScheduler)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second, EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError,
	})
}

// collector reads the engine at each scrape. Models and workers change when models are loaded, so it
// does not describe its metrics in advance.
type collector struct{ engine *engine.Engine }

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	m, e := sink{to}, c.engine
	server, stats := e.Server(), e.Stats()
	m.gauge("server_info", "The server: always 1.", 1, "name", server.Name, "version", server.Version, "go", runtime.Version())
	m.gauge("ready", "1 while requests can be expected to be served.", truth(e.Ready() == nil))
	m.gauge("live", "0 if the server is stuck and must be restarted.", truth(e.Live() == nil))
	m.gauge("draining", "1 while the server drains.", truth(stats.Draining))
	m.gauge("calls_in_flight", "Calls of all transports, among them idle streams.", float64(stats.Calls))
	m.gauge("requests_in_flight", "Requests in flight, including waiting ones.", float64(stats.Requests))
	for kind, n := range stats.Refused {
		m.counter("refusals_total", "Requests that were refused or failed, by reason.", n, "kind", oip.Kind(kind).String())
	}
	for _, p := range e.Pools() {
		limit := float64(p.Limit)
		if p.Limit == 0 {
			limit = math.Inf(1)
		}
		m.gauge("memory_limit_bytes", "Capacity of a pool in bytes; +Inf without a limit.", limit, "pool", p.Name())
	}
	for _, model := range e.Models() {
		m.model(model)
	}
	regions, bytes, leases := e.Regions().InUse()
	m.gauge("regions", "Registered regions of clients' shared memory.", float64(regions))
	m.gauge("region_bytes", "Bytes of registered regions.", float64(bytes))
	m.gauge("region_leases", "Uses of regions by requests in flight.", float64(leases))
	metrics.NewCollector(metrics.Runner("models", e.Runner())).Collect(to)
}

// model sends the metrics of a model.
func (m sink) model(of *engine.Model) {
	s := of.Stats()
	labels := []string{"model", s.Name, "version", s.Version}
	with := func(name, value string) []string { return append(labels[:4:4], name, value) }
	const requests = "Completed requests of a model, by outcome."
	const stage = "Time that requests spent: preparing inputs and memory, in the queue and in the model, storing outputs."
	m.gauge("model_ready", "1 while the model can be called.", truth(of.Ready() == nil), labels...)
	m.counter("requests_total", requests, s.Success.Count, with("outcome", "success")...)
	m.counter("requests_total", requests, s.Fail.Count, with("outcome", "failure")...)
	for name, spent := range map[string]engine.Duration{"input": s.ComputeInput, "infer": s.ComputeInfer, "output": s.ComputeOutput} {
		desc, values := describe("stage_seconds_total", stage, with("stage", name))
		m.to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(spent.NS)/1e9, values...)
	}
	m.counter("executions_total", "Calls of the model.", s.Executions, labels...)
	m.counter("input_bytes_total", "Bytes of inputs.", s.InputBytes, labels...)
	m.counter("output_bytes_total", "Bytes of outputs.", s.OutputBytes, labels...)
	m.counter("memory_kept_requests_total", "Requests of whose memory the model kept a part.", s.Kept, labels...)
	of.Latency().Collect(m.to)
}

// sink sends metrics to a channel. Labels are pairs of a name and a value.
type sink struct{ to chan<- prometheus.Metric }

func (m sink) gauge(name, help string, v float64, labels ...string) {
	desc, values := describe(name, help, labels)
	m.to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, values...)
}

func (m sink) counter(name, help string, n uint64, labels ...string) {
	desc, values := describe(name, help, labels)
	m.to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), values...)
}

// describe returns the description of a metric and the values of its labels.
func describe(name, help string, labels []string) (desc *prometheus.Desc, values []string) {
	var names []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return prometheus.NewDesc("inference_"+name, help, names, nil), values
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
