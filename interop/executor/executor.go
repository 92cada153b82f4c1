package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
)

// Runner runs Python functions: an Executor in this process, or a pool of worker processes. Its
// methods can be called from any goroutine.
type Runner interface {
	// Call runs a function and returns its result. The arguments remain the caller's. The caller
	// owns the arrays in the result.
	Call(ctx context.Context, function string, args ...any) (any, error)
	// CallEach calls a function in every process of the Runner, beside the queue and the calls. The function gets a text and
	// returns a text, of which CallEach returns one. Calls of one key run one after the other, and those of different
	// keys at the same time. A process that starts later repeats the last successful call of each key before its first
	// call of Call.
	CallEach(ctx context.Context, key, function, text string) (string, error)
	// Ready waits until the warm-up is done. It returns the error of a step that failed, ErrClosed,
	// or ErrWarming with the cause of ctx if that ends first.
	Ready(ctx context.Context) error
	// Health returns nil if a call can be expected to be served, else the reason.
	Health() error
	// Stats returns the current counts.
	Stats() Stats
	// Close refuses new calls and waits for the others, at most until ctx ends.
	Close(ctx context.Context) error
}

// Module is the source of a Python module that is part of the Go program.
type Module struct {
	Name   string // the name to import it by
	Source string
}

// Step is a part of a warm-up that is written in Go.
type Step struct {
	Name string
	// Run is called on the thread of a slot, without the GIL. ctx ends with Close.
	Run func(ctx context.Context, py *python.Interpreter) error
	// Serial runs the step on the lane instead.
	Serial bool
}

// Config configures an Executor. The zero value means one slot and a queue of 64.
type Config struct {
	// Slots is the number of calls that run at a time, in addition to one on the lane. 0 means 1.
	Slots int
	// Queue is the maximum number of calls that wait for a slot, and of calls that wait for the
	// lane. 0 means 64.
	Queue int
	// Wait makes a call wait for a place in the queue until its context ends. Otherwise a full
	// queue returns ErrFull.
	Wait bool
	// Modules are created, in order, before the functions of Warm are called.
	Modules []Module
	// Warm names functions ("module:name") that are called without arguments, in order, before the
	// first call.
	Warm []string
	// Serial names the functions ("module:name") and modules ("module") whose calls run
	// on the lane, one at a time. This includes the calls of Warm.
	Serial []string
	// Steps are run after the functions of Warm.
	Steps []Step
	// Grace is the time that a call may run after the end of its context before its slot counts as
	// stuck. 0 means two seconds. With math.MaxInt64 callers wait until their calls end, and the
	// goroutine of a caller makes the call itself if a slot is idle.
	Grace time.Duration
	// Spare is the maximum number of stuck slots that are replaced at a time. 0 means as many as
	// Slots, a negative number means none.
	Spare int
}

// Stats are the counts of a Runner.
type Stats struct {
	Slots   int // slots that take calls, including the lane
	Stuck   int // slots whose call still runs Config.Grace after the end of its context
	Running int // running calls, including stuck ones
	Waiting int // calls in the queues

	Calls       uint64 // completed calls, successful or not
	Failed      uint64 // completed calls that failed with an exception or a panic
	Interrupted uint64 // completed calls that were asked to stop, whether they stopped or not
	NotBegun    uint64 // calls whose context ended before they began
	Refused     uint64 // calls that found the queue full

	Oldest   time.Duration // age of the oldest running call
	Lost     int           // threads of CallEach whose call did not stop within Config.Grace and still runs
	WarmDone int           // completed steps of the warm-up
	WarmAll  int           // all steps of the warm-up
}

// Reasons why a call was not served, for errors.Is.
var (
	// ErrFull is the reason if the queue is full.
	ErrFull = errors.New("the queue is full; try again later or increase Config.Queue")
	// ErrClosed is the reason after Close.
	ErrClosed = errors.New("the executor is closed")
	// ErrStuck is the reason if the call still runs after the end of its context and cannot be
	// stopped. Health returns it if such calls occupy the lane or all slots.
	ErrStuck = errors.New("call does not stop")
	// ErrWarming is the reason in errors of Health and Ready during the warm-up. Calls wait for it.
	ErrWarming = errors.New("the warm-up is not done")
)

// Error is the error of a call without a result, and of Health, Ready and Close.
type Error struct {
	Package string // the package of the Runner; "" means "executor"
	Op      string // the called function, "module:name", or the method "Health", "Ready" or "Close"
	Kind    error  // an error variable of this package, python.ErrNotBegun, or nil
	Err     error  // the cause: the error of the context, an exception, a *python.PanicError; or nil
}

// Error returns "Package: Op: Kind: Err".
func (e *Error) Error() string {
	s := cmp.Or(e.Package, "executor")
	if e.Op != "" {
		s += ": " + e.Op
	}
	return operr.Text(s, e.Kind, e.Err)
}

// Unwrap returns Kind and Err.
func (e *Error) Unwrap() []error { return operr.Unwrap(e.Kind, e.Err) }

// Executor runs Python functions in this process. Its methods can be called from any goroutine.
type Executor struct {
	py     *python.Interpreter
	config Config
	serial map[string]bool
	slots  *queue
	lane   *queue // nil if nothing is serial

	functions sync.Map // name to *callable
	each      calls.Turns

	ctx    context.Context // the context of the steps
	cancel context.CancelCauseFunc
	warm   warmup
	closed atomic.Bool
	over   sync.WaitGroup // counts the goroutines of slots
	ended  func() <-chan struct{}

	counters counters
}

type counters struct {
	calls, failed, interrupted, notBegun, refused atomic.Uint64
}

var _ Runner = (*Executor)(nil)

// New starts an executor on a running interpreter. It does not wait for the warm-up; use Ready for
// that. Close ends the executor.
//
// Errors: python.ErrNotStarted for a nil interpreter; a negative Slots, Queue or Grace, an empty name
// in Modules or Serial, a name in Warm without the form "module:name", a step without a function.
func New(py *python.Interpreter, config Config) (*Executor, error) {
	if py == nil {
		return nil, fmt.Errorf("executor: New: %w", python.ErrNotStarted)
	}
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("executor: New: %w", err)
	}
	e := &Executor{py: py, config: config, serial: map[string]bool{}}
	for _, name := range config.Serial {
		e.serial[name] = true
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.warm.init(e.steps())
	e.ended = sync.OnceValue(func() <-chan struct{} {
		c := make(chan struct{})
		go func() { e.over.Wait(); close(c) }()
		return c
	})
	e.slots = newQueue("slots", config.Queue, config.Spare)
	e.slots.free = 1
	needLane := len(e.serial) > 0
	for _, s := range e.warm.steps {
		needLane = needLane || s.Serial
	}
	if needLane {
		e.lane = newQueue("lane", config.Queue, 0)
		e.lane.free = 1
		e.start(e.lane, e.laneSteps)
	}
	e.start(e.slots, e.warmUp)
	return e, nil
}

// complete checks the configuration and sets defaults.
func (c *Config) complete() error {
	if c.Slots < 0 || c.Queue < 0 || c.Grace < 0 {
		return fmt.Errorf("Slots %d, Queue %d, Grace %v: none may be negative", c.Slots, c.Queue, c.Grace)
	}
	if slices.Contains(c.Serial, "") {
		return errors.New("a name in Serial is empty")
	}
	for _, m := range c.Modules {
		if m.Name == "" {
			return errors.New("a module of Modules has no name")
		}
	}
	for _, name := range c.Warm {
		if err := calls.CheckFunction(name); err != nil {
			return fmt.Errorf("Warm: %w", err)
		}
	}
	for i, s := range c.Steps {
		if s.Run == nil {
			return fmt.Errorf("step %d of Steps, %q, has no function", i+1, s.Name)
		}
	}
	if c.Slots == 0 {
		c.Slots = 1
	}
	if c.Queue == 0 {
		c.Queue = 64
	}
	if c.Grace == 0 {
		c.Grace = 2 * time.Second
	}
	if c.Spare == 0 {
		c.Spare = c.Slots
	}
	c.Spare = max(c.Spare, 0)
	return nil
}

// queueOf returns the queue of a function: the lane's or the slots'.
func (e *Executor) queueOf(function string) *queue {
	if len(e.serial) > 0 && e.isSerial(function) {
		return e.lane
	}
	return e.slots
}

func (e *Executor) isSerial(function string) bool {
	module, _, _ := strings.Cut(function, ":")
	return e.serial[function] || e.serial[module]
}

// Call runs a Python function and returns its result: see the package documentation. The arguments
// remain the caller's and must not be changed before Call returns. If Python keeps an array, it holds
// its own reference to the memory. The caller owns the arrays in the result and must Release them. The
// GIL must not be held.
func (e *Executor) Call(ctx context.Context, function string, args ...any) (any, error) {
	if ctx.Err() != nil {
		return nil, e.notBegun(ctx, function)
	}
	if e.closed.Load() {
		return nil, &Error{Op: function, Kind: ErrClosed}
	}
	j, err := e.newJob(ctx, function, args)
	if err != nil {
		return nil, &Error{Op: function, Err: err}
	}
	defer j.release()
	q := e.queueOf(function)
	if e.config.Grace == math.MaxInt64 {
		if s := q.take(j); s != nil {
			return e.callHere(ctx, q, s, j)
		}
	}
	if err := q.enter(j, e.config.Wait); err != nil {
		if errors.Is(err, ErrFull) {
			e.counters.refused.Add(1)
			return nil, &Error{Op: function, Kind: ErrFull}
		}
		if ctx.Err() != nil {
			return nil, e.notBegun(ctx, function)
		}
		if errors.Is(err, ErrClosed) {
			return nil, &Error{Op: function, Kind: ErrClosed}
		}
		return nil, &Error{Op: function, Err: err}
	}
	select {
	case <-j.ended:
		return j.result, j.err
	case <-ctx.Done():
	}
	return e.leave(ctx, q, j)
}

// callHere makes a call in a slot that q.take returned, on the goroutine of the caller.
func (e *Executor) callHere(ctx context.Context, q *queue, s *slot, j *job) (any, error) {
	if ctx.Done() != nil {
		j.refs.Add(1)
		stop := context.AfterFunc(ctx, func() {
			defer j.release()
			if !j.item.Move(calls.Waiting, calls.Left) && j.item.State() == calls.Running {
				j.interrupt(nil)
			}
		})
		defer func() {
			if stop() {
				j.release()
			}
		}()
	}
	e.serve(s)
	q.giveBack(s)
	if j.item.State() == calls.Left {
		return nil, e.notBegun(ctx, j.function)
	}
	<-j.ended
	return j.result, j.err
}

// leave ends the wait of a caller whose context has ended.
func (e *Executor) leave(ctx context.Context, q *queue, j *job) (any, error) {
	if j.item.Move(calls.Waiting, calls.Left) {
		q.remove(j)
		return nil, e.notBegun(ctx, j.function)
	}
	if j.item.State() == calls.Running {
		j.interrupt(nil)
	}
	timer := time.NewTimer(e.config.Grace)
	defer timer.Stop()
	select {
	case <-j.ended:
		return j.result, j.err
	case <-timer.C:
	}
	if j.read != nil { // The caller may change its arguments after Call returns.
		select {
		case <-j.ended:
			return j.result, j.err
		case <-j.read:
		}
	}
	if !j.item.Move(calls.Running, calls.Left) {
		<-j.ended
		return j.result, j.err
	}
	if q.noteStuck(j, &e.over) {
		e.run(q, nil)
	}
	return nil, &Error{Op: j.function, Kind: ErrStuck,
		Err: fmt.Errorf("%w, but the call did not stop within %v", operr.Ended(ctx), e.config.Grace)}
}

// notBegun counts a call that its caller gave up before it began, and returns its error. ctx has ended.
func (e *Executor) notBegun(ctx context.Context, function string) error {
	e.counters.notBegun.Add(1)
	return &Error{Op: function, Kind: python.ErrNotBegun, Err: operr.Ended(ctx)}
}

// Ready waits until the warm-up is done. Errors: the error of the step that failed, ErrClosed, and
// ErrWarming with the cause of ctx if that ends first.
func (e *Executor) Ready(ctx context.Context) error {
	select {
	case <-e.warm.over:
	case <-ctx.Done():
		return &Error{Op: "Ready", Kind: ErrWarming, Err: context.Cause(ctx)}
	}
	if err := e.warm.failed(); err != nil {
		return &Error{Op: "Ready", Err: err}
	}
	return nil
}

// Health implements Runner. It returns nil or an *Error. It is cheap enough for frequent probes.
func (e *Executor) Health() error {
	const op = "Health"
	if e.closed.Load() {
		return &Error{Op: op, Kind: ErrClosed}
	}
	if _, err := python.Start(); err != nil { // Python was started, so an error means that it has ended.
		return &Error{Op: op, Err: err}
	}
	if err := e.warm.health(); err != nil {
		return &Error{Op: op, Kind: ErrWarming, Err: err}
	}
	for _, q := range e.queues() {
		if free, stuck, _ := q.counts(); free == 0 && stuck > 0 {
			_, function, age := q.runs()
			if function == "" {
				continue // The call has just ended.
			}
			return &Error{Op: op, Kind: ErrStuck, Err: fmt.Errorf("%s: all calls run past the end of their contexts; the oldest, %s, has run for %v",
				q.name, function, age.Round(time.Millisecond))}
		}
	}
	return nil
}

// Stats implements Runner.
func (e *Executor) Stats() Stats {
	s := Stats{
		Calls: e.counters.calls.Load(), Failed: e.counters.failed.Load(),
		Interrupted: e.counters.interrupted.Load(), NotBegun: e.counters.notBegun.Load(),
		Refused: e.counters.refused.Load(),
	}
	s.Running, s.Oldest, _ = e.runs()
	s.Lost = e.each.Stuck()
	s.WarmDone, s.WarmAll = e.warm.progress()
	for _, q := range e.queues() {
		free, stuck, waiting := q.counts()
		s.Slots += free
		s.Stuck += stuck
		s.Waiting += waiting
	}
	return s
}

// Close implements Runner. It waits for waiting and running calls until ctx ends. Then waiting calls
// return ErrClosed, running calls are interrupted, and Close waits for Config.Grace. If calls still run
// after that, it returns ErrStuck with their number. Close can be called again to wait for the rest.
func (e *Executor) Close(ctx context.Context) error {
	const op = "Close"
	e.closed.Store(true)
	e.slots.close()
	if e.lane != nil {
		e.lane.close()
	}
	over := e.ended()
	select {
	case <-over:
	case <-ctx.Done():
		cause := &Error{Op: op, Kind: ErrClosed, Err: errors.New("the context of Close ended before the call")}
		e.cancel(cause)
		for _, q := range e.queues() {
			end(append(q.takeAll(), q.interruptAll(cause)...), func(j *job) error { return &Error{Op: j.function, Kind: ErrClosed} })
		}
		timer := time.NewTimer(e.config.Grace)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			n, age, function := e.runs()
			if n == 0 && e.warm.isOver() { // Nothing delays the goroutines.
				<-over
				break
			}
			return &Error{Op: op, Kind: ErrStuck, Err: fmt.Errorf("%d calls still run; the oldest, %s, has run for %v; their threads remain until they end",
				n, function, age.Round(time.Millisecond))}
		}
	}
	e.cancel(&Error{Op: op, Kind: ErrClosed})
	e.functions.Range(func(name, o any) bool {
		if _, mine := e.functions.LoadAndDelete(name); mine {
			o.(*callable).object.Release()
		}
		return true
	})
	return nil
}

// queues returns the queues in use.
func (e *Executor) queues() []*queue {
	if e.lane == nil {
		return []*queue{e.slots}
	}
	return []*queue{e.lane, e.slots}
}

// runs returns the number of running calls, and the age and the function of the oldest.
func (e *Executor) runs() (n int, age time.Duration, function string) {
	for _, q := range e.queues() {
		m, f, a := q.runs()
		n += m
		if a > age {
			age, function = a, f
		}
	}
	return n, age, function
}
