package admin

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
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
	m.send("server_info", "The server: always 1.", 1, "name", server.Name, "version", server.Version, "go", runtime.Version())
	m.send("ready", "1 while requests can be expected to be served.", truth(e.Ready() == nil))
	m.send("live", "0 if the server is stuck and must be restarted.", truth(e.Live() == nil))
	m.send("draining", "1 while the server drains.", truth(stats.Draining))
	m.send("calls_in_flight", "Calls of all transports, among them idle streams.", float64(stats.Calls))
	m.send("requests_in_flight", "Requests in flight, including waiting ones.", float64(stats.Requests))
	for kind, n := range stats.Refused {
		m.send("refusals_total", "Requests that were refused or failed, by reason.", float64(n), "kind", oip.Kind(kind).String())
	}
	for _, p := range []engine.Pool{e.Options.Memory, e.Options.Calls, e.Options.Results} {
		m.send("memory_limit_bytes", "Capacity of a pool in bytes; 0 without a limit.", float64(p.Limit), "pool", p.Name())
	}
	for _, model := range e.Models() {
		m.model(model)
	}
	regions, bytes, leases := e.Options.Regions.InUse()
	m.send("regions", "Registered regions of clients' shared memory.", float64(regions))
	m.send("region_bytes", "Bytes of registered regions.", float64(bytes))
	m.send("region_leases", "Uses of regions by requests in flight.", float64(leases))
	metrics.NewCollector(metrics.Runner("models", e.Options.Runner)).Collect(to)
}

// model sends the metrics of a model.
func (m sink) model(of *engine.Model) {
	s := of.Stats()
	labels := []string{"model", of.Meta().Name, "version", of.Meta().Versions[0]}
	m.send("model_ready", "1 while the model can be called.", truth(of.Ready() == nil), labels...)
	for outcome, requests := range map[string]engine.Duration{"success": s.Success, "failure": s.Fail} {
		m.send("requests_total", "Completed requests of a model, by outcome.", float64(requests.Count), append(labels, "outcome", outcome)...)
	}
	for stage, spent := range map[string]engine.Duration{"input": s.ComputeInput, "infer": s.ComputeInfer, "output": s.ComputeOutput} {
		m.send("stage_seconds_total", "Time that requests spent: preparing inputs and memory, in the queue and in the model, storing outputs.",
			float64(spent.NS)/1e9, append(labels, "stage", stage)...)
	}
	m.send("executions_total", "Calls of the model.", float64(s.Executions), labels...)
	m.send("input_bytes_total", "Bytes of inputs.", float64(s.InputBytes), labels...)
	m.send("output_bytes_total", "Bytes of outputs.", float64(s.OutputBytes), labels...)
	m.send("memory_kept_requests_total", "Requests of whose memory the model kept a part.", float64(s.Kept), labels...)
	of.Latency().Collect(m)
}

// sink sends metrics to a channel.
type sink chan<- prometheus.Metric

// send sends a counter, if the name ends with _total, or a gauge. labels are names, each with its value after it.
func (m sink) send(name, help string, v float64, labels ...string) {
	kind, of := prometheus.GaugeValue, prometheus.Labels{}
	if strings.HasSuffix(name, "_total") {
		kind = prometheus.CounterValue
	}
	for pair := range slices.Chunk(labels, 2) {
		of[pair[0]] = pair[1]
	}
	m <- prometheus.MustNewConstMetric(prometheus.NewDesc("inference_"+name, help, nil, of), kind, v)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
