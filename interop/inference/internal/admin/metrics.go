package admin

import (
	"math"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	pools "github.com/usmbridge/usmbridge/interop/metrics"
)

// namedTenants is the number of tenants with their own series while the process lives. Later tenants
// share the series "others".
const namedTenants = 32

// metrics serves the metrics of the engine, the pools, the Go runtime and the process.
func metrics(e *engine.Engine, o Options) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(
		newCollector(e, o),
		pools.NewCollector(),
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

// collector reads the engine at each scrape.
type collector struct {
	engine  *engine.Engine
	options Options
	d       descriptions

	mu    sync.Mutex
	named map[string]string // tenants that have series, and what they are called
}

type descriptions struct {
	all []*prometheus.Desc

	info, ready, live, draining, inFlight, waiting, turns, refused *prometheus.Desc
	modelReady, requests, duration, stages, executions             *prometheus.Desc
	inputBytes, outputBytes, copied, copiedOutputs, keeping        *prometheus.Desc
	memoryLimit                                                    *prometheus.Desc
	tenants, tenantRequests, tenantBytes                           *prometheus.Desc
	regions, regionBytes, regionUses                               *prometheus.Desc
	slots, stuck, running, queued, calls, failed, interrupted      *prometheus.Desc
	notBegun, callsRefused, oldest, warmSteps, warmDone            *prometheus.Desc
	workerReady, workerCalls, workerRestarts                       *prometheus.Desc
}

func (d *descriptions) add(name, help string, labels ...string) *prometheus.Desc {
	desc := prometheus.NewDesc("inference_"+name, help, labels, nil)
	d.all = append(d.all, desc)
	return desc
}

func newCollector(e *engine.Engine, o Options) *collector {
	c := &collector{engine: e, options: o, named: map[string]string{}}
	d := &c.d
	d.info = d.add("server_info", "The server: always 1.", "name", "version", "go")
	d.ready = d.add("ready", "1 while requests can be expected to be served.")
	d.live = d.add("live", "0 if the server is stuck and must be restarted.")
	d.draining = d.add("draining", "1 while the server drains.")
	d.inFlight = d.add("requests_in_flight", "Requests in flight, including waiting ones.")
	d.waiting = d.add("requests_waiting", "Requests that wait for a place to run.")
	d.turns = d.add("turns_taken", "Requests that have a place to run.")
	d.refused = d.add("refusals_total", "Requests that were refused or failed, by reason.", "kind")
	d.modelReady = d.add("model_ready", "1 while the model can be called.", "model", "version")
	d.requests = d.add("requests_total", "Completed requests of a model, by outcome.", "model", "version", "outcome")
	d.duration = d.add("request_duration_seconds", "Time of requests from their admission to the end of the call.", "model", "version")
	d.stages = d.add("stage_seconds_total", "Time that requests spent: waiting for a place, preparing inputs and memory, in the model, storing outputs.", "model", "version", "stage")
	d.executions = d.add("executions_total", "Calls of the model.", "model", "version")
	d.inputBytes = d.add("input_bytes_total", "Bytes of inputs.", "model", "version")
	d.outputBytes = d.add("output_bytes_total", "Bytes of outputs.", "model", "version")
	d.copied = d.add("output_copied_bytes_total", "Bytes of outputs that were copied because the model returned them.", "model", "version")
	d.copiedOutputs = d.add("outputs_copied_total", "Outputs that were copied because the model returned them.", "model", "version")
	d.keeping = d.add("memory_kept_requests_total", "Requests of whose memory the model kept a part.", "model", "version")
	d.memoryLimit = d.add("memory_limit_bytes", "Capacity of a pool in bytes; +Inf without a limit.", "pool")
	d.tenants = d.add("tenants", "Tenants in the table.")
	d.tenantRequests = d.add("tenant_requests_in_flight", "Requests of a tenant in flight.", "tenant")
	d.tenantBytes = d.add("tenant_memory_bytes", "Bytes in use by a tenant.", "tenant")
	d.regions = d.add("regions", "Registered regions of clients' shared memory.")
	d.regionBytes = d.add("region_bytes", "Bytes of registered regions.")
	d.regionUses = d.add("region_leases", "Uses of regions by requests in flight.")
	d.slots = d.add("executor_slots", "Slots for calls of Python, including the serial lane.")
	d.stuck = d.add("executor_stuck_slots", "Slots whose call runs past its deadline.")
	d.running = d.add("executor_calls_running", "Running calls of Python.")
	d.queued = d.add("executor_calls_waiting", "Calls of Python that wait for a slot.")
	d.calls = d.add("executor_calls_total", "Completed calls of Python.")
	d.failed = d.add("executor_failures_total", "Calls of Python that failed with an exception.")
	d.interrupted = d.add("executor_interruptions_total", "Calls of Python that were asked to stop.")
	d.notBegun = d.add("executor_abandoned_total", "Calls of Python that were abandoned before they began.")
	d.callsRefused = d.add("executor_refusals_total", "Calls of Python that were refused because the queue was full.")
	d.oldest = d.add("executor_oldest_call_seconds", "Age of the oldest running call.")
	d.warmSteps = d.add("executor_warmup_steps", "Steps of the warm-up.")
	d.warmDone = d.add("executor_warmup_steps_done", "Completed steps of the warm-up.")
	d.workerReady = d.add("worker_ready", "1 while the process takes calls.", "worker")
	d.workerCalls = d.add("worker_calls_total", "Calls that the process and its predecessors have completed.", "worker")
	d.workerRestarts = d.add("worker_restarts_total", "Restarts of the process.", "worker")
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.d.all {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	g := giver{to}
	d, e := &c.d, c.engine
	server, stats := e.Server(), e.Stats()
	g.gauge(d.info, 1, server.Name, server.Version, runtime.Version())
	g.gauge(d.ready, truth(e.Ready() == nil))
	g.gauge(d.live, truth(e.Live() == nil))
	g.gauge(d.draining, truth(stats.Draining))
	g.gauge(d.inFlight, float64(stats.Requests))
	g.gauge(d.waiting, float64(stats.Waiting))
	g.gauge(d.turns, float64(stats.Running))
	for kind, n := range stats.Refused {
		g.counter(d.refused, float64(n), oip.Kind(kind).String())
	}
	if p := c.options.Pool; p != nil {
		g.gauge(d.memoryLimit, bound(e.Limit()), p.Name())
	}
	if p := c.options.Calls; p != nil {
		g.gauge(d.memoryLimit, bound(c.options.CallsLimit), p.Name())
	}
	for _, m := range e.Models() {
		c.model(g, m)
	}
	c.tenants(g, stats.Tenants)
	if r := e.Regions(); r != nil {
		regions, bytes, leases := r.InUse()
		g.gauge(d.regions, float64(regions))
		g.gauge(d.regionBytes, float64(bytes))
		g.gauge(d.regionUses, float64(leases))
	}
	c.executor(g)
}

func (c *collector) model(g giver, m *engine.Model) {
	d, s := &c.d, m.Stats()
	labels := []string{s.Name, s.Version}
	with := func(last string) []string { return []string{s.Name, s.Version, last} }
	g.gauge(d.modelReady, truth(m.Ready() == nil), labels...)
	g.counter(d.requests, float64(s.Success.Count), with("success")...)
	g.counter(d.requests, float64(s.Fail.Count), with("failure")...)
	for stage, spent := range map[string]engine.Duration{
		"queue": s.Queue, "input": s.ComputeInput, "infer": s.ComputeInfer, "output": s.ComputeOutput,
	} {
		g.counter(d.stages, float64(spent.NS)/1e9, with(stage)...)
	}
	g.counter(d.executions, float64(s.Executions), labels...)
	g.counter(d.inputBytes, float64(s.InputBytes), labels...)
	g.counter(d.outputBytes, float64(s.OutputBytes), labels...)
	g.counter(d.copied, float64(s.CopiedSize), labels...)
	g.counter(d.copiedOutputs, float64(s.CopiedOutputs), labels...)
	g.counter(d.keeping, float64(s.Kept), labels...)
	upTo, sum := map[float64]uint64{}, uint64(0)
	for i, n := range s.Latency.Counts {
		sum += n
		if i < len(engine.LatencyBounds) {
			upTo[engine.LatencyBounds[i]] = sum
		}
	}
	g.to <- prometheus.MustNewConstHistogram(d.duration, sum, float64(s.Latency.NS)/1e9, upTo, labels...)
}

// tenants collects the series of tenants.
func (c *collector) tenants(g giver, all []engine.TenantStats) {
	g.gauge(c.d.tenants, float64(len(all)))
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := map[string]*engine.TenantStats{} // by label: two names may be shown alike
	for _, t := range all {
		label, ok := c.named[t.Name]
		if !ok && len(c.named) < namedTenants {
			label = oip.TenantLabel(t.Name)
			c.named[t.Name] = label
		} else if !ok {
			label = "others"
		}
		if sums[label] == nil {
			sums[label] = &engine.TenantStats{}
		}
		sums[label].Requests += t.Requests
		sums[label].Bytes += t.Bytes
	}
	for label, t := range sums {
		g.gauge(c.d.tenantRequests, float64(t.Requests), label)
		g.gauge(c.d.tenantBytes, float64(t.Bytes), label)
	}
}

func (c *collector) executor(g giver) {
	d, s := &c.d, c.engine.Runner().Stats()
	g.gauge(d.slots, float64(s.Slots))
	g.gauge(d.stuck, float64(s.Stuck))
	g.gauge(d.running, float64(s.Running))
	g.gauge(d.queued, float64(s.Waiting))
	g.counter(d.calls, float64(s.Calls))
	g.counter(d.failed, float64(s.Failed))
	g.counter(d.interrupted, float64(s.Interrupted))
	g.counter(d.notBegun, float64(s.NotBegun))
	g.counter(d.callsRefused, float64(s.Refused))
	g.gauge(d.oldest, s.Oldest.Seconds())
	g.gauge(d.warmSteps, float64(s.WarmAll))
	g.gauge(d.warmDone, float64(s.WarmDone))
	if c.options.Workers == nil {
		return
	}
	for _, w := range c.options.Workers() {
		g.gauge(d.workerReady, truth(w.Ready), w.Name)
		g.counter(d.workerCalls, float64(w.Calls), w.Name)
		g.counter(d.workerRestarts, float64(w.Restarts), w.Name)
	}
}

// giver sends metrics to a channel.
type giver struct{ to chan<- prometheus.Metric }

func (g giver) gauge(d *prometheus.Desc, v float64, labels ...string) {
	g.to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (g giver) counter(d *prometheus.Desc, v float64, labels ...string) {
	g.to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// bound returns a limit as a metric; 0 means no limit.
func bound(limit uint64) float64 {
	if limit == 0 {
		return math.Inf(1)
	}
	return float64(limit)
}
