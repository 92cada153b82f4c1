package workers

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/internal/fair"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// States of a worker.
const (
	Starting  = "starting"  // its process is being started
	Importing = "importing" // Python starts and imports Config.Modules
	Warming   = "warming"   // the steps of Config.Warm run
	Ready     = "ready"     // it waits for a call or runs one
	Dead      = "dead"      // its process has ended; Next is the time of the next start
)

// Status describes a worker, for status pages.
type Status struct {
	Index    int
	State    string    // Starting, …
	Step     string    // module or function of the start that runs now
	PID      int       // process ID, 0 if there is no process
	Since    time.Time // time at which the process was started, or ended
	Next     time.Time // time of the next start; zero unless Dead
	Calls    uint64    // finished calls, of all its processes
	Restarts int
	Last     *Death // the last end of a process; nil if there was none

	// Memory is the number of bytes that the pools of its process hold from the system, at most a second ago.
	Memory uint64

	Function string    // function that runs now, "" if none
	Began    time.Time // time at which Function began
}

// Pool runs Python functions in worker processes. All methods are safe for concurrent use.
type Pool struct {
	config  Config
	setup   setup
	env     []string
	starter *starter
	server  *share.Server // lends arguments and opens results
	lender  lender
	outlet  outlet

	ctx    context.Context // its end stops the workers
	cancel context.CancelFunc
	over   chan struct{} // closed when the last worker has ended

	arguments, results traffic
	counters           counters

	mu      sync.Mutex
	workers []*worker
	idle    []*process            // the one used last is at the end
	waiting int                   // calls that wait for a worker
	turns   fair.Queue[list.List] // of *waiter: the waiting calls of each function
	changed chan struct{}         // closed at the next change of a state; nil if no goroutine waits for one
	closed  bool

	each     calls.Turns
	standing []*task // the last successful call of CallEach of each key; under mu
}

type counters struct {
	calls, failed, interrupted, notBegun, refused atomic.Uint64
}

// waiter is a call that waits for a worker.
type waiter struct {
	function string
	got      chan *process // closed, after err is set, if there will be none
	err      error
	at       *list.Element // nil when it no longer waits; under Pool.mu
	flow     *fair.Flow[list.List]
}

// drop removes a waiting call. mu is held.
func (p *Pool) drop(w *waiter) {
	w.flow.Items.Remove(w.at)
	p.turns.Leave(w.flow)
	p.waiting--
	w.at = nil
}

// next removes the waiting call that begins next and returns it; nil if none waits. mu is held.
func (p *Pool) next() *waiter {
	f := p.turns.Next()
	if f == nil {
		return nil
	}
	w := f.Items.Front().Value.(*waiter)
	p.drop(w)
	return w
}

// bytesOf returns paths as bytes, which the JSON of a message keeps.
func bytesOf(paths []string) (all [][]byte) {
	for _, p := range paths {
		all = append(all, []byte(p))
	}
	return all
}

// begin records that a process runs a function. mu is held.
func (p *Pool) begin(r *process, function string) {
	r.function, r.began, r.flow = function, time.Now(), p.turns.Flow(function)
	p.turns.Begin(r.flow)
}

var _ executor.Runner = (*Pool)(nil)

// New starts the workers of a Pool and does not wait for them. Ready and calls wait until a worker
// is ready. The caller closes the Pool.
//
// New returns an error, and starts nothing, if the configuration is invalid, if there is no Python
// (*python.NotFoundError), if processes cannot share memory (errors.ErrUnsupported without cgo or
// on other systems than Linux), if the program has not called Main and Config.Program is not set,
// and if the process is itself a worker.
func New(config Config) (*Pool, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("workers: New: %w", err)
	}
	if isWorker {
		return nil, errors.New("workers: New: this process is a worker of another Pool, and workers make none: call workers.Main first in main (in tests, in TestMain), and New after it")
	}
	if config.Program == nil && !mainCalled.Load() {
		return nil, errors.New("workers: New: this program has not called workers.Main, so each worker would run the whole program again: call it first in main (in tests, in TestMain), or name a program that does in Config.Program")
	}
	environment := config.Python
	if environment == nil {
		var err error
		if environment, err = python.Find(); err != nil {
			return nil, fmt.Errorf("workers: New: %w", err)
		}
	}
	p := &Pool{
		config: config,
		setup:  setup{Python: *environment, Path: bytesOf(config.Path), Modules: config.Modules, Import: config.Import, Warm: config.Warm, MaxMessage: config.MaxMessage, Memory: config.Memory},
		env:    workerEnv(environment, config.Env),
		outlet: outlet{to: config.Output},
		over:   make(chan struct{}),
	}
	var err error
	p.server, err = share.Listen(context.Background(), "", share.Options{AsHost: true, Queue: config.SYCL, MaxPeers: 4*config.Workers + 64})
	if err != nil {
		return nil, fmt.Errorf("workers: New: %w", err)
	}
	// Copies for a worker are read-only, because the caller would not see changes to a copy.
	p.lender = lender{server: p.server, audience: segment.PeersRead}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.starter = newStarter()
	var group sync.WaitGroup
	for i := range config.Workers {
		w := &worker{pool: p, index: i, state: Starting, since: time.Now(), skipped: map[*task]bool{}}
		p.workers = append(p.workers, w)
	}
	for _, w := range p.workers {
		group.Go(w.supervise)
	}
	go func() {
		group.Wait()
		p.starter.end()
		_ = p.server.Close() // never fails
		p.forget()
		close(p.over)
	}()
	return p, nil
}

// forgetTime bounds the wait for the leases of processes that have ended. They end within
// milliseconds.
const forgetTime = 5 * time.Second

// forget waits until all memory that the workers held is back.
func (p *Pool) forget() {
	for end := time.Now().Add(forgetTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s := p.server.Stats(); s.Peers == 0 && s.Leases == 0 && s.Unopened == 0 {
			return
		}
	}
}

// change wakes the goroutines that wait for a change of a worker's state. mu is held.
func (p *Pool) change() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// watch returns a channel that the next change closes. mu is held.
func (p *Pool) watch() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// enter returns a ready worker for a call. It waits if there is none.
func (p *Pool) enter(ctx context.Context, function string) (*process, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, executor.ErrClosed
	}
	for n := len(p.idle); n > 0; n = len(p.idle) {
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		if r.spoiled.Load() {
			continue
		}
		p.begin(r, function)
		p.mu.Unlock()
		return r, nil
	}
	if err := p.hopeless(); err != nil {
		p.mu.Unlock()
		return nil, err
	}
	if p.waiting >= p.config.Queue && !p.config.Wait {
		p.mu.Unlock()
		return nil, executor.ErrFull
	}
	w := &waiter{function: function, got: make(chan *process, 1), flow: p.turns.Flow(function)}
	w.at = w.flow.Items.PushBack(w)
	p.turns.Wait(w.flow)
	p.waiting++
	p.mu.Unlock()
	select {
	case r, ok := <-w.got:
		if !ok {
			return nil, w.err
		}
		return r, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	if w.at != nil {
		p.drop(w)
		p.mu.Unlock()
		return nil, ctx.Err()
	}
	p.mu.Unlock()
	if r, ok := <-w.got; ok {
		p.give(r)
	}
	return nil, ctx.Err()
}

// give hands a worker to the next waiting call, or makes it idle. Functions take turns.
func (p *Pool) give(r *process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.function != "" {
		p.turns.End(r.flow, time.Since(r.began))
	}
	r.function = ""
	if r.dead { // it ended meanwhile, and this call was its only user
		_ = r.wire.conn.Close()
	}
	if r.dead || r.spoiled.Load() {
		p.change()
		return
	}
	if w := p.next(); w != nil {
		p.begin(r, w.function)
		w.got <- r
		return
	}
	p.idle = append(p.idle, r)
	p.change()
}

// refuse ends all waits with an error. mu is held.
func (p *Pool) refuse(err error) {
	for w := p.next(); w != nil; w = p.next() {
		w.err = err
		close(w.got)
	}
}

// hopeless returns the reason why no worker will be ready soon; nil while one is ready or starts.
// mu is held.
func (p *Pool) hopeless() error {
	var last *worker
	for _, w := range p.workers {
		if !w.held {
			return nil
		}
		if last == nil || w.next.Before(last.next) {
			last = w
		}
	}
	return fmt.Errorf("%w: each of %d was started %d times within %v, the next is tried in %v; %w", ErrRestarts,
		len(p.workers), p.config.Restarts+1, p.config.Window, time.Until(last.next).Round(time.Millisecond), last.last)
}

// Ready waits until Health returns nil. It returns ErrRestarts if the workers die too often,
// executor.ErrClosed, or the error of the context.
func (p *Pool) Ready(ctx context.Context) error {
	for {
		p.mu.Lock()
		err, changed := p.health(), p.watch()
		p.mu.Unlock()
		if err == nil || errors.Is(err, ErrRestarts) || errors.Is(err, executor.ErrClosed) {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &executor.Error{Package: "workers", Op: "Ready", Kind: executor.ErrWarming, Err: fmt.Errorf("%w: %w", context.Cause(ctx), err)}
		}
	}
}

// Health implements executor.Runner. It returns nil if at least Config.Least workers are ready or
// in calls, and otherwise an *executor.Error with the state of the others. It is quick enough for
// every health probe.
func (p *Pool) Health() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health()
}

func (p *Pool) health() error {
	if p.closed {
		return &executor.Error{Package: "workers", Op: "Health", Kind: executor.ErrClosed}
	}
	n := 0
	var other *worker
	for _, w := range p.workers {
		if w.state == Ready {
			n++
		} else if other == nil || w.held && !other.held {
			other = w
		}
	}
	if n >= p.config.Least {
		return nil
	}
	if err := p.hopeless(); err != nil {
		return &executor.Error{Package: "workers", Op: "Health", Err: err}
	}
	err := fmt.Errorf("%d of %d workers ready, and %d are wanted; worker %d is %s", n, len(p.workers), p.config.Least, other.index, other.state)
	if other.step != "" {
		err = fmt.Errorf("%w: %s", err, other.step)
	}
	if other.last != nil {
		err = fmt.Errorf("%w; it ended before: %w", err, other.last)
	}
	return &executor.Error{Package: "workers", Op: "Health", Kind: executor.ErrWarming, Err: err}
}

// Stats implements executor.Runner. Slots counts the workers that are ready, and Stuck those in
// calls whose context has ended. The warm-up steps are those of all workers together.
func (p *Pool) Stats() executor.Stats {
	s := executor.Stats{
		Calls: p.counters.calls.Load(), Failed: p.counters.failed.Load(), Interrupted: p.counters.interrupted.Load(),
		NotBegun: p.counters.notBegun.Load(), Refused: p.counters.refused.Load(),
		WarmAll: len(p.workers) * len(p.config.Warm),
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Waiting = p.waiting
	for _, w := range p.workers {
		if w.state == Ready {
			s.Slots++
		}
		s.WarmDone += w.warmed
		if r := w.process; r != nil && r.function != "" {
			s.Running++
			s.Oldest = max(s.Oldest, time.Since(r.began))
			if r.overdue.Load() {
				s.Stuck++
			}
		}
	}
	return s
}

// Workers returns the status of each worker.
func (p *Pool) Workers() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Status, len(p.workers))
	for i, w := range p.workers {
		all[i] = Status{Index: i, State: w.state, Step: w.step, Since: w.since, Next: w.next, Calls: w.calls, Restarts: w.restarts, Last: w.last}
		if r := w.process; r != nil {
			all[i].PID, all[i].Function, all[i].Began, all[i].Memory = r.pid, r.function, r.began, r.memory.Load()
		}
	}
	return all
}

// Traffic counts the arrays in arguments and in results.
func (p *Pool) Traffic() (arguments, results Traffic) {
	return p.arguments.load(), p.results.load()
}

// Close implements executor.Runner. Until ctx ends, it lets waiting and running calls finish. Then
// waiting calls fail with executor.ErrClosed and running calls are interrupted. The workers exit
// as Python programs do, and are killed if that takes longer than Config.Grace. Results stay
// valid. Close may be called again.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.change()
	p.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refuse(executor.ErrClosed)
		p.cancel()
	})
	defer stop()
	p.drain()
	p.cancel()
	<-p.over
	return nil
}

// drain waits until no call waits or runs, or until the workers are being stopped.
func (p *Pool) drain() {
	for {
		p.mu.Lock()
		busy := p.waiting > 0
		for _, w := range p.workers {
			busy = busy || w.process != nil && w.process.function != ""
		}
		changed := p.watch()
		p.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return
		}
	}
}
