package engine

import (
	"sync/atomic"
	"time"
)

// Duration counts an activity and its total time.
type Duration struct {
	Count uint64 `json:"count"`
	NS    uint64 `json:"ns"`
}

// LatencyBounds are the upper bounds of the buckets of a Histogram, in seconds. A last bucket has no
// bound.
var LatencyBounds = [...]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// Histogram counts requests by their time from Begin to the end of Run.
type Histogram struct {
	Counts [len(LatencyBounds) + 1]uint64 // of each bucket alone
	NS     uint64                         // of all together
}

// ModelStats are the counts of one model, in the words of Triton's statistics extension.
type ModelStats struct {
	Name, Version string
	Inferences    uint64    // requests that were served
	Executions    uint64    // calls of the model
	Last          time.Time // end of the last one, zero before
	Success       Duration  // requests from Begin to the end of Run
	Fail          Duration  // the same, of those that were refused after Begin, or failed
	Queue         Duration  // waiting for a turn
	ComputeInput  Duration  // making arrays and memory for outputs
	ComputeInfer  Duration  // the call
	ComputeOutput Duration  // putting outputs in place
	Latency       Histogram // of Success and Fail together

	InputBytes, OutputBytes   uint64
	CopiedOutputs, CopiedSize uint64 // outputs that were copied because the model returned them, and their bytes
	Kept                      uint64 // requests of whose memory the model kept something
}

type duration struct{ count, ns atomic.Uint64 }

func (d *duration) add(t time.Duration) {
	d.count.Add(1)
	d.ns.Add(uint64(max(t, 0)))
}

func (d *duration) get() Duration { return Duration{d.count.Load(), d.ns.Load()} }

type modelStats struct {
	executions, last                           atomic.Uint64
	success, fail, queue, input, infer, output duration
	buckets                                    [len(LatencyBounds) + 1]atomic.Uint64
	inputBytes, outputBytes                    atomic.Uint64
	copied, copiedSize, kept                   atomic.Uint64
}

// done counts a request.
func (s *modelStats) done(took time.Duration, ok bool) {
	if ok {
		s.success.add(took)
	} else {
		s.fail.add(took)
	}
	i, seconds := 0, took.Seconds()
	for i < len(LatencyBounds) && seconds > LatencyBounds[i] {
		i++
	}
	s.buckets[i].Add(1)
}

// Stats returns the counts of the model. They are not taken at one instant.
func (m *Model) Stats() ModelStats {
	s := m.stats
	out := ModelStats{
		Name: m.def.Meta.Name, Version: m.def.Meta.Versions[0],
		Executions: s.executions.Load(), Success: s.success.get(), Fail: s.fail.get(), Queue: s.queue.get(),
		ComputeInput: s.input.get(), ComputeInfer: s.infer.get(), ComputeOutput: s.output.get(),
		InputBytes: s.inputBytes.Load(), OutputBytes: s.outputBytes.Load(),
		CopiedOutputs: s.copied.Load(), CopiedSize: s.copiedSize.Load(), Kept: s.kept.Load(),
	}
	out.Inferences = out.Success.Count
	out.Latency.NS = out.Success.NS + out.Fail.NS
	for i := range s.buckets {
		out.Latency.Counts[i] = s.buckets[i].Load()
	}
	if last := s.last.Load(); last != 0 {
		out.Last = time.Unix(0, int64(last))
	}
	return out
}
