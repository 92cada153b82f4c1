package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

// mostTenants are on the page.
const mostTenants = 16

// sampler looks at the engine once a second, and makes of it what the page is sent.
type sampler struct {
	engine  *engine.Engine
	options Options
	started time.Time
	artist  artist
	before  reading

	mu      sync.Mutex
	viewers int
	history historyView
	state   []byte        // JSON of the last view; nil before the first
	changed chan struct{} // closed with the next state
}

// reading is what rates are made from: the counters at one moment.
type reading struct {
	at     time.Time
	models []engine.ModelStats
}

func newSampler(e *engine.Engine, o Options) *sampler {
	return &sampler{engine: e, options: o, started: time.Now(), changed: make(chan struct{})}
}

// run samples until the context ends.
func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		s.sample()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample looks once. What is only for the page is left out while nobody looks on.
func (s *sampler) sample() {
	s.mu.Lock()
	watched := s.viewers > 0
	s.mu.Unlock()
	v := s.look(watched)
	text, err := json.Marshal(v)
	if err != nil {
		return // a number that JSON does not have; the next second has others
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.add(v)
	s.state = text
	close(s.changed)
	s.changed = make(chan struct{})
}

// watch counts one who looks on, until unwatch.
func (s *sampler) watch() (history []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers++
	return json.Marshal(&s.history)
}

func (s *sampler) unwatch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers--
}

// current is the last state, and what is closed with the next.
func (s *sampler) current() ([]byte, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// look reads everything. It is called by one goroutine.
func (s *sampler) look(watched bool) *view {
	e := s.engine
	server, stats := e.Server(), e.Stats()
	v := &view{
		Server: serverView{server.Name, server.Version}, Uptime: time.Since(s.started).Seconds(),
		Live: reason(e.Live()), Ready: reason(e.Ready()),
		InFlight: stats.Requests, Waiting: stats.Slots.Waiting + stats.Lane.Waiting,
		Most:    stats.Slots.MaxRequests + stats.Lane.MaxRequests,
		Tenants: []tenantView{}, Workers: s.workers(), Refused: refusals(&stats.Refused),
	}
	s.models(v)
	s.memory(v, watched)
	if watched {
		v.AllTenants = len(stats.Tenants)
		v.Tenants = largest(stats.Tenants)
	}
	if r := e.Regions(); r != nil {
		v.Regions = &regionView{}
		v.Regions.Count, v.Regions.Bytes, v.Regions.Uses = r.InUse()
	}
	return v
}

// models adds the models, and what is the sum of them.
func (s *sampler) models(v *view) {
	now := reading{at: time.Now()}
	all := s.engine.Models()
	v.Models = make([]modelView, len(all))
	var total histogram
	var failed, copied uint64
	seconds := now.at.Sub(s.before.at).Seconds()
	first := s.before.models == nil
	for i, m := range all {
		st := m.Stats()
		now.models = append(now.models, st)
		mv := &v.Models[i]
		*mv = modelView{Name: st.Name, Ready: reason(m.Ready()), Served: st.Success.Count, Failed: st.Fail.Count, Kept: st.Kept}
		for k, d := range []engine.Duration{st.Queue, st.ComputeInput, st.ComputeInfer, st.ComputeOutput} {
			mv.Stages[k] = float64(d.NS) / 1e9
		}
		if first {
			continue
		}
		then := &s.before.models[i]
		d := since(&st.Latency, &then.Latency)
		sum(&total, &d)
		mv.Rate = per(count(&d), seconds)
		mv.P50, mv.P99 = quantile(&d, .5), quantile(&d, .99)
		failed += st.Fail.Count - then.Fail.Count
		copied += st.CopiedSize - then.CopiedSize
	}
	if !first {
		v.Rate, v.FailedRate, v.CopiedRate = per(count(&total), seconds), per(failed, seconds), per(copied, seconds)
		v.P50, v.P99 = quantile(&total, .5), quantile(&total, .99)
	}
	s.before = now
}

func per(n uint64, seconds float64) *float64 {
	v := float64(n) / max(seconds, 1e-3)
	return &v
}

// memory adds the pools: their counters, and the picture of the first while somebody looks on.
func (s *sampler) memory(v *view, watched bool) {
	if p := s.options.Calls; p != nil {
		calls := poolOf(p, s.options.CallsLimit)
		v.Calls = &calls
	}
	p := s.options.Pool
	if p == nil {
		return
	}
	v.Memory = &memoryView{poolView: poolOf(p, s.engine.Limit())}
	if watched {
		v.Memory.picture = s.artist.draw(p)
	}
}

func poolOf(p *memmgr.Pool, limit uint64) poolView {
	stats := p.Stats()
	v := poolView{Name: p.Name(), Limit: limit, Allocated: stats.AllocatedBytes.Current,
		Requested: stats.RequestedBytes.Current, Reserved: stats.ReservedBytes.Current, Peak: stats.ReservedBytes.Peak,
		Buffers: stats.Allocation.Current, Waiting: stats.NumWaiting, Count: stats.Segment.Current}
	if place := p.Place(); place != nil {
		v.Place = place.String()
	}
	return v
}

// refusals are the counts of refusals by kind, those that there were, the most first.
func refusals(counts *[oip.Kinds]uint64) []refusedView {
	all := []refusedView{}
	for kind, n := range counts {
		if n > 0 {
			all = append(all, refusedView{oip.Kind(kind).String(), n})
		}
	}
	slices.SortStableFunc(all, func(a, b refusedView) int { return cmp.Compare(b.Requests, a.Requests) })
	return all
}

// workers are what runs Python: the executor, and its processes where it has any.
func (s *sampler) workers() []workerView {
	runner := s.engine.Runner()
	stats, state := runner.Stats(), "ready"
	if err := runner.Health(); err != nil {
		state = "not ready"
	}
	if stats.WarmDone < stats.WarmAll {
		state = "warming up"
	}
	if stats.Stuck > 0 {
		state += ", stuck calls"
	}
	all := []workerView{{Name: "executor", State: state, Running: &stats.Running, Waiting: &stats.Waiting, Calls: stats.Calls, Failed: &stats.Failed}}
	if s.options.Workers == nil {
		return all
	}
	for _, w := range s.options.Workers() {
		all = append(all, workerView{Name: w.Name, State: w.State, Calls: w.Calls, Restarts: &w.Restarts})
	}
	return all
}

// largest are the tenants with the most requests and bytes.
func largest(all []engine.TenantStats) []tenantView {
	slices.SortFunc(all, func(a, b engine.TenantStats) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	all = all[:min(len(all), mostTenants)]
	views := make([]tenantView, len(all))
	for i, t := range all {
		views[i] = tenantView{oip.TenantLabel(t.Name), t.Requests, t.Bytes}
	}
	return views
}

// reason is what is told of an error: for a client, nothing of our inside.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return oip.As(err).Message
}
