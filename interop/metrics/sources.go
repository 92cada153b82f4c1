package metrics

import (
	"strconv"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Option adds a source to the exported metrics.
type Option func(*[]source)

// definition describes one metric. Its name has the form of OpenTelemetry, "runner.calls".
type definition struct {
	name, unit, help string
	labels           []string
	counter          bool // the value never decreases
}

// source reads metrics of one kind.
type source struct {
	metrics []definition
	read    func(emit func(metric int, value float64, labels ...string))
}

// row is a metric with the function that reads its value.
type row[T any] struct {
	definition
	of func(T) float64
}

func gaugeOf[T any](name, unit, help string, of func(T) float64) row[T] {
	return row[T]{definition{name: name, unit: unit, help: help}, of}
}

func counterOf[T any](name, unit, help string, of func(T) float64) row[T] {
	return row[T]{definition{name: name, unit: unit, help: help, counter: true}, of}
}

// newSource makes a source of rows with the same labels. each calls its argument for every value,
// with the values of the labels.
func newSource[T any](labels []string, rows []row[T], each func(func(value T, labels ...string))) source {
	s := source{}
	for _, r := range rows {
		d := r.definition
		d.labels = labels
		s.metrics = append(s.metrics, d)
	}
	s.read = func(emit func(int, float64, ...string)) {
		each(func(value T, labels ...string) {
			for i, r := range rows {
				emit(i, r.of(value), labels...)
			}
		})
	}
	return s
}

// Tenants exports the open tenants of all pools, with their names as labels. Use it only if the
// program chooses the names: names from clients could create an unlimited number of series.
func Tenants() Option {
	rows := []row[*memmgr.Stats]{
		gaugeOf("tenant.memory.allocated", "By", "Bytes of the tenant's buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.AllocatedBytes.Current) }),
		gaugeOf("tenant.memory.requested", "By", "Requested bytes of the tenant's buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.RequestedBytes.Current) }),
		gaugeOf("tenant.memory.active", "By", "Bytes that count against the tenant's limits: in use, or with pending device work.", func(s *memmgr.Stats) float64 { return float64(s.ActiveBytes.Current) }),
		gaugeOf("tenant.memory.active.peak", "By", "Maximum of the active bytes since the last reset of peaks.", func(s *memmgr.Stats) float64 { return float64(s.ActiveBytes.Peak) }),
		gaugeOf("tenant.waiting", "{request}", "Requests of the tenant that wait for memory.", func(s *memmgr.Stats) float64 { return float64(s.NumWaiting) }),
		counterOf("tenant.allocations", "{allocation}", "Allocations of the tenant.", func(s *memmgr.Stats) float64 { return float64(s.Allocation.Allocated) }),
		counterOf("tenant.frees", "{free}", "Frees of the tenant.", func(s *memmgr.Stats) float64 { return float64(s.Allocation.Freed) }),
		counterOf("tenant.refusals", "{request}", "Requests of the tenant that failed because memory was missing.", func(s *memmgr.Stats) float64 { return float64(s.NumOOMs) }),
	}
	return func(all *[]source) {
		*all = append(*all, newSource([]string{"pool", "place", "tenant"}, rows, func(value func(*memmgr.Stats, ...string)) {
			tenants := tenantSums()
			for _, key := range inOrder(tenants) {
				value(tenants[key], key.pool, key.place, key.tenant)
			}
		}))
	}
}

// Runner exports the counters of an executor.Executor or a workers.Pool under a name. For a
// workers.Pool, it also exports the state of each worker and the arrays that were sent.
func Runner(name string, r executor.Runner) Option {
	rows := []row[*executor.Stats]{
		gaugeOf("runner.slots", "{slot}", "Threads or worker processes that take calls.", func(s *executor.Stats) float64 { return float64(s.Slots) }),
		gaugeOf("runner.stuck", "{slot}", "Slots whose call did not stop in time.", func(s *executor.Stats) float64 { return float64(s.Stuck) }),
		gaugeOf("runner.running", "{call}", "Running calls.", func(s *executor.Stats) float64 { return float64(s.Running) }),
		gaugeOf("runner.waiting", "{call}", "Calls in the queue.", func(s *executor.Stats) float64 { return float64(s.Waiting) }),
		gaugeOf("runner.oldest", "s", "Age of the oldest running call.", func(s *executor.Stats) float64 { return s.Oldest.Seconds() }),
		gaugeOf("runner.warmup.steps", "{step}", "Steps of the warm-up.", func(s *executor.Stats) float64 { return float64(s.WarmAll) }),
		gaugeOf("runner.warmup.done", "{step}", "Completed steps of the warm-up.", func(s *executor.Stats) float64 { return float64(s.WarmDone) }),
		counterOf("runner.calls", "{call}", "Completed calls.", func(s *executor.Stats) float64 { return float64(s.Calls) }),
		counterOf("runner.failures", "{call}", "Completed calls that raised an exception or panicked.", func(s *executor.Stats) float64 { return float64(s.Failed) }),
		counterOf("runner.interruptions", "{call}", "Completed calls that were asked to stop.", func(s *executor.Stats) float64 { return float64(s.Interrupted) }),
		counterOf("runner.not_begun", "{call}", "Calls whose context ended before they began.", func(s *executor.Stats) float64 { return float64(s.NotBegun) }),
		counterOf("runner.refusals", "{call}", "Calls that found the queue full.", func(s *executor.Stats) float64 { return float64(s.Refused) }),
	}
	return func(all *[]source) {
		*all = append(*all, newSource([]string{"runner"}, rows, func(value func(*executor.Stats, ...string)) {
			s := r.Stats()
			value(&s, name)
		}))
		if pool, ok := r.(*workers.Pool); ok {
			*all = append(*all, workerStates(name, pool), workerTraffic(name, pool))
		}
	}
}

// workerStates returns the source of the workers of a pool.
func workerStates(name string, pool *workers.Pool) source {
	return newSource([]string{"runner", "worker"}, []row[*workers.Status]{
		gaugeOf("worker.ready", "{worker}", "1 if the worker takes calls, else 0.", func(s *workers.Status) float64 {
			if s.State == workers.Ready {
				return 1
			}
			return 0
		}),
		counterOf("worker.calls", "{call}", "Completed calls of the worker, in all its processes.", func(s *workers.Status) float64 { return float64(s.Calls) }),
		counterOf("worker.restarts", "{restart}", "Restarts of the worker.", func(s *workers.Status) float64 { return float64(s.Restarts) }),
	}, func(value func(*workers.Status, ...string)) {
		for _, s := range pool.Workers() {
			value(&s, name, strconv.Itoa(s.Index))
		}
	})
}

// workerTraffic returns the source of the arrays that a pool sent and received.
func workerTraffic(name string, pool *workers.Pool) source {
	return newSource([]string{"runner", "direction"}, []row[*workers.Traffic]{
		counterOf("worker.arrays.by_handle", "{array}", "Arrays sent by handle, without a copy.", func(t *workers.Traffic) float64 { return float64(t.Handles) }),
		counterOf("worker.arrays.by_value", "{array}", "Arrays sent by value.", func(t *workers.Traffic) float64 { return float64(t.Copies) }),
		counterOf("worker.arrays.copied", "By", "Bytes of the arrays sent by value.", func(t *workers.Traffic) float64 { return float64(t.Bytes) }),
	}, func(value func(*workers.Traffic, ...string)) {
		arguments, results := pool.Traffic()
		value(&arguments, name, "arguments")
		value(&results, name, "results")
	})
}
