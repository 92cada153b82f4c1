package admin

import (
	"maps"
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
	m, e := sink(to), c.engine
	server, stats := e.Server(), e.Stats()
	m.gauge("server_info", "The server: always 1.", 1, prometheus.Labels{"name": server.Name, "version": server.Version, "go": runtime.Version()})
	m.gauge("ready", "1 while requests can be expected to be served.", truth(e.Ready() == nil), nil)
	m.gauge("live", "0 if the server is stuck and must be restarted.", truth(e.Live() == nil), nil)
	m.gauge("draining", "1 while the server drains.", truth(stats.Draining), nil)
	m.gauge("calls_in_flight", "Calls of all transports, among them idle streams.", float64(stats.Calls), nil)
	m.gauge("requests_in_flight", "Requests in flight, including waiting ones.", float64(stats.Requests), nil)
	for kind, n := range stats.Refused {
		m.counter("refusals_total", "Requests that were refused or failed, by reason.", float64(n), prometheus.Labels{"kind": oip.Kind(kind).String()})
	}
	for _, p := range e.Pools() {
		limit := float64(p.Limit)
		if p.Limit == 0 {
			limit = math.Inf(1)
		}
		m.gauge("memory_limit_bytes", "Capacity of a pool in bytes; +Inf without a limit.", limit, prometheus.Labels{"pool": p.Name()})
	}
	for _, model := range e.Models() {
		m.model(model)
	}
	regions, bytes, leases := e.Regions().InUse()
	m.gauge("regions", "Registered regions of clients' shared memory.", float64(regions), nil)
	m.gauge("region_bytes", "Bytes of registered regions.", float64(bytes), nil)
	m.gauge("region_leases", "Uses of regions by requests in flight.", float64(leases), nil)
	var options []metrics.Option
	if runner := e.Runner(); runner != nil {
		options = append(options, metrics.Runner("models", runner))
	}
	metrics.NewCollector(options...).Collect(to)
}

// model sends the metrics of a model.
func (m sink) model(of *engine.Model) {
	s := of.Stats()
	labels := prometheus.Labels{"model": of.Meta().Name, "version": of.Meta().Versions[0]}
	with := func(name, value string) prometheus.Labels {
		all := maps.Clone(labels)
		all[name] = value
		return all
	}
	const requests = "Completed requests of a model, by outcome."
	const stage = "Time that requests spent: preparing inputs and memory, in the queue and in the model, storing outputs."
	m.gauge("model_ready", "1 while the model can be called.", truth(of.Ready() == nil), labels)
	m.counter("requests_total", requests, float64(s.Success.Count), with("outcome", "success"))
	m.counter("requests_total", requests, float64(s.Fail.Count), with("outcome", "failure"))
	for name, spent := range map[string]engine.Duration{"input": s.ComputeInput, "infer": s.ComputeInfer, "output": s.ComputeOutput} {
		m.counter("stage_seconds_total", stage, float64(spent.NS)/1e9, with("stage", name))
	}
	m.counter("executions_total", "Calls of the model.", float64(s.Executions), labels)
	m.counter("input_bytes_total", "Bytes of inputs.", float64(s.InputBytes), labels)
	m.counter("output_bytes_total", "Bytes of outputs.", float64(s.OutputBytes), labels)
	m.counter("memory_kept_requests_total", "Requests of whose memory the model kept a part.", float64(s.Kept), labels)
	of.Latency().Collect(m)
}

// sink sends metrics to a channel.
type sink chan<- prometheus.Metric

func (m sink) gauge(name, help string, v float64, labels prometheus.Labels) {
	m <- prometheus.MustNewConstMetric(prometheus.NewDesc("inference_"+name, help, nil, labels), prometheus.GaugeValue, v)
}

func (m sink) counter(name, help string, v float64, labels prometheus.Labels) {
	m <- prometheus.MustNewConstMetric(prometheus.NewDesc("inference_"+name, help, nil, labels), prometheus.CounterValue, v)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
