package metrics

import (
	"strconv"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Option adds a source to the exported metrics.
type Option func(*[]source)

// Tenants exports the open tenants of all pools, with their names as labels. Use it only if the
// program chooses the names: names from clients could create an unlimited number of series.
func Tenants() Option {
	rows := []row[*memmgr.Stats]{
		{"tenant_memory_allocated_bytes", "Bytes of the tenant's buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.AllocatedBytes.Current) }},
		{"tenant_memory_requested_bytes", "Requested bytes of the tenant's buffers in use.", func(s *memmgr.Stats) float64 { return float64(s.RequestedBytes.Current) }},
		{"tenant_memory_active_bytes", "Bytes that count against the tenant's limits: in use, or with pending device work.", func(s *memmgr.Stats) float64 { return float64(s.ActiveBytes.Current) }},
		{"tenant_memory_active_peak_bytes", "Maximum of the active bytes since the last reset of peaks.", func(s *memmgr.Stats) float64 { return float64(s.ActiveBytes.Peak) }},
		{"tenant_waiting", "Requests of the tenant that wait for memory.", func(s *memmgr.Stats) float64 { return float64(s.NumWaiting) }},
		{"tenant_allocations_total", "Allocations of the tenant.", func(s *memmgr.Stats) float64 { return float64(s.Allocation.Allocated) }},
		{"tenant_frees_total", "Frees of the tenant.", func(s *memmgr.Stats) float64 { return float64(s.Allocation.Freed) }},
		{"tenant_refusals_total", "Requests of the tenant that failed because memory was missing.", func(s *memmgr.Stats) float64 { return float64(s.NumOOMs) }},
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
		{"runner_slots", "Threads or worker processes that take calls.", func(s *executor.Stats) float64 { return float64(s.Slots) }},
		{"runner_stuck", "Slots whose call did not stop in time.", func(s *executor.Stats) float64 { return float64(s.Stuck) }},
		{"runner_lost_threads", "Threads whose call beside the queue, such as the load of a model, did not stop in time and still runs.", func(s *executor.Stats) float64 { return float64(s.Lost) }},
		{"runner_running", "Running calls.", func(s *executor.Stats) float64 { return float64(s.Running) }},
		{"runner_waiting", "Calls in the queue.", func(s *executor.Stats) float64 { return float64(s.Waiting) }},
		{"runner_oldest_seconds", "Age of the oldest running call.", func(s *executor.Stats) float64 { return s.Oldest.Seconds() }},
		{"runner_warmup_steps", "Steps of the warm-up.", func(s *executor.Stats) float64 { return float64(s.WarmAll) }},
		{"runner_warmup_done", "Completed steps of the warm-up.", func(s *executor.Stats) float64 { return float64(s.WarmDone) }},
		{"runner_calls_total", "Completed calls.", func(s *executor.Stats) float64 { return float64(s.Calls) }},
		{"runner_failures_total", "Completed calls that raised an exception or panicked.", func(s *executor.Stats) float64 { return float64(s.Failed) }},
		{"runner_interruptions_total", "Completed calls that were asked to stop.", func(s *executor.Stats) float64 { return float64(s.Interrupted) }},
		{"runner_not_begun_total", "Calls whose context ended before they began.", func(s *executor.Stats) float64 { return float64(s.NotBegun) }},
		{"runner_refusals_total", "Calls that found the queue full.", func(s *executor.Stats) float64 { return float64(s.Refused) }},
	}
	name = label(name)
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
		{"worker_ready", "1 if the worker takes calls, else 0.", func(s *workers.Status) float64 {
			if s.State == workers.Ready {
				return 1
			}
			return 0
		}},
		{"worker_calls_total", "Completed calls of the worker, in all its processes.", func(s *workers.Status) float64 { return float64(s.Calls) }},
		{"worker_memory_bytes", "Bytes that the pools of the worker's process hold from the system.", func(s *workers.Status) float64 { return float64(s.Memory) }},
		{"worker_restarts_total", "Restarts of the worker.", func(s *workers.Status) float64 { return float64(s.Restarts) }},
	}, func(value func(*workers.Status, ...string)) {
		for _, s := range pool.Workers() {
			value(&s, name, strconv.Itoa(s.Index))
		}
	})
}

// workerTraffic returns the source of the arrays that a pool sent and received.
func workerTraffic(name string, pool *workers.Pool) source {
	return newSource([]string{"runner", "direction"}, []row[*workers.Traffic]{
		{"worker_arrays_by_handle_total", "Arrays sent by handle, without a copy.", func(t *workers.Traffic) float64 { return float64(t.Handles) }},
		{"worker_arrays_by_value_total", "Arrays sent by value.", func(t *workers.Traffic) float64 { return float64(t.Copies) }},
		{"worker_arrays_copied_bytes_total", "Bytes of the arrays sent by value.", func(t *workers.Traffic) float64 { return float64(t.Bytes) }},
	}, func(value func(*workers.Traffic, ...string)) {
		arguments, results := pool.Traffic()
		value(&arguments, name, "arguments")
		value(&results, name, "results")
	})
}
