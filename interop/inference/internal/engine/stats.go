package engine

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Duration counts an activity and its total time.
type Duration struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

// ModelStats are the counts of one model, in the words of Triton's statistics extension.
type ModelStats struct {
	Executions              uint64    // calls of the model
	Last                    time.Time // end of the last one, zero before
	Success                 Duration  // requests that were served, from Begin to the end of Run
	Fail                    Duration  // the same, of those that were refused after Begin, or failed
	ComputeInput            Duration  // making arrays and memory for outputs
	ComputeInfer            Duration  // the call, with its wait in the queue of the runner
	ComputeOutput           Duration  // putting outputs in place
	InputBytes, OutputBytes uint64
	Kept                    uint64 // requests of whose memory the model kept something
}

func (d *Duration) add(t time.Duration) {
	d.Count++
	d.NS += uint64(max(t, 0))
}

// modelStats are the counts of a model for concurrent use.
type modelStats struct {
	mu      sync.Mutex
	s       ModelStats
	latency prometheus.Histogram // of Success and Fail together
}

func newStats(model string) *modelStats {
	return &modelStats{latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "inference_request_duration_seconds",
		Help:        "Time of requests from their admission to the end of the call.",
		ConstLabels: prometheus.Labels{"model": model, "version": "1"},
		Buckets:     []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}})}
}

// update calls f with the counts.
func (m *modelStats) update(f func(s *ModelStats)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.s)
}

// Statistics returns the counts of models in the words of Triton's extension, for JSON.
func Statistics(models ...*Model) map[string]any {
	list := make([]any, len(models))
	for i, m := range models {
		s, last := m.Stats(), int64(0) // milliseconds since 1970
		if !s.Last.IsZero() {
			last = s.Last.UnixMilli()
		}
		list[i] = map[string]any{
			"name": m.def.Meta.Name, "version": m.def.Meta.Versions[0], "last_inference": last, "inference_count": s.Success.Count, "execution_count": s.Executions,
			"inference_stats": map[string]Duration{"success": s.Success, "fail": s.Fail, "queue": {Count: s.ComputeInfer.Count}, "compute_input": s.ComputeInput,
				"compute_infer": s.ComputeInfer, "compute_output": s.ComputeOutput, "cache_hit": {}, "cache_miss": {}},
			"batch_stats": []any{},
		}
	}
	return map[string]any{"model_stats": list}
}

// Stats returns the counts of the model.
func (m *Model) Stats() (s ModelStats) {
	m.stats.update(func(current *ModelStats) { s = *current })
	return s
}

// Latency is the metric of the time of requests.
func (m *Model) Latency() prometheus.Collector { return m.stats.latency }
