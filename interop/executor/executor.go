package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
)

// Runner runs functions of Python: an Executor on the interpreter of this process, or
// processes of their own behind the same methods. All may be called from any goroutine.
type Runner interface {
	// Call runs a function and returns its result. The caller keeps its arguments, and owns
	// the arrays in the result.
	Call(ctx context.Context, function string, args ...any) (any, error)
	// Health is nil when calls can be expected to be served, else why not.
	Health() error
	// Stats counts.
	Stats() Stats
	// Close ends it: calls under way may end until ctx does.
	Close(ctx context.Context) error
}

// Step is one function of a warm-up.
type Step struct {
	Name string
	// Run is called on a slot's thread, without the GIL; ctx ends with Close.
	Run func(ctx context.Context, py *python.Interpreter) error
	// Serial has it run on the lane's thread instead.
	Serial bool
}

// Config says how an Executor works. The zero value is one slot with a queue of 64.
type Config struct {
	// Slots is how many calls run at a time, besides one of the lane; 0 is 1.
	Slots int
	// Queue is how many calls may wait for a slot, and as many for the lane; 0 is 64.
	Queue int
	// Wait has a call wait, as long as its context allows, for a place in the queue.
	// Without it a full queue is ErrFull.
	Wait bool
	// Serial names the functions ("module:name") and modules ("module") whose calls run
	// on the lane, one at a time.
	Serial []string
	// Warm are the steps to run before the first call.
	Warm []Step
	// Grace is how long a call may run after its context's end before its slot counts as
	// stuck; 0 is two seconds.
	Grace time.Duration
	// Spare is how many stuck slots may be replaced at a time. 0 is as many as Slots,
	// a negative number none.
	Spare int
}

// Stats are the counts of a Runner.
type Stats struct {
	Slots   int // that take calls, the lane among them
	Stuck   int // of them and beside them: whose call went on past its context's end
	Running int // calls that run, those that are stuck among them
	Waiting int // calls in the queues

	Calls       uint64 // that have ended, well or not
	Failed      uint64 // of them: with an exception or a panic
	Interrupted uint64 // of them: that were asked to stop, or went on all the same
	NotBegun    uint64 // given up by their callers before they began
	Refused     uint64 // for want of a place

	Oldest   time.Duration // for how long the longest-running call has run
	WarmDone int           // steps of the warm-up that are done
	WarmAll  int           // of so many
}

// Reasons, for errors.Is, why a call was not served.
var (
	// ErrFull: as many calls wait as may. It comes as it is, without an *Error around it.
	ErrFull = errors.New("executor: the queue is full: try again later, or make it longer (Config.Queue)")
	// ErrClosed: Close has been called.
	ErrClosed = errors.New("the executor is closed")
	// ErrStuck: the call runs on after its context's end and cannot be stopped; in Health,
	// such calls have all slots, or the lane.
	ErrStuck = errors.New("it does not stop")
	// ErrWarming: steps of the warm-up have still to run. Calls wait for that; Health gives it.
	ErrWarming = errors.New("the warm-up is not done")
)

// Error is a call that gave no result.
type Error struct {
	Function string // "module:name"; "" in Health
	Kind     error  // one of the Err… of this package or python.ErrNotBegun, or nil
	Err      error  // what it was: of the context, an exception, a *python.PanicError
}

// Error names the function, the reason and the cause.
func (e *Error) Error() string {
	s := "executor"
	if e.Function != "" {
		s += ": " + e.Function
	}
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			s += ": " + err.Error()
		}
	}
	return s
}

// Unwrap gives Kind and Err.
func (e *Error) Unwrap() (both []error) {
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			both = append(both, err)
		}
	}
	return both
}

// Executor runs functions of Python in this process.
type Executor struct {
	py     *python.Interpreter
	config Config
	serial map[string]bool
	slots  *queue
	lane   *queue // nil where nothing is serial

	functions sync.Map // name to *callable

	ctx    context.Context // ends the steps and the running calls
	cancel context.CancelCauseFunc
	warm   warmup
	closed atomic.Bool
	over   sync.WaitGroup // the threads of slots
	ended  func() <-chan struct{}

	counters counters
}

type counters struct {
	calls, failed, interrupted, notBegun, refused atomic.Uint64
}

var _ Runner = (*Executor)(nil)

// New starts an executor on a running interpreter: its threads, and the warm-up. It does
// not wait for that; Ready does. Close ends it.
//
// Errors: python.ErrNotStarted for a nil interpreter; a negative number in the
// configuration, an empty name, a step without a function.
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
	e.warm.init(config.Warm)
	e.ended = sync.OnceValue(func() <-chan struct{} {
		c := make(chan struct{})
		go func() { e.over.Wait(); close(c) }()
		return c
	})
	e.slots = newQueue("slots", config.Queue, config.Spare)
	e.slots.free = 1
	needLane := len(e.serial) > 0
	for _, s := range config.Warm {
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

// complete checks the configuration and fills in what was left out.
func (c *Config) complete() error {
	if c.Slots < 0 || c.Queue < 0 || c.Grace < 0 {
		return fmt.Errorf("Slots %d, Queue %d, Grace %v: none may be negative", c.Slots, c.Queue, c.Grace)
	}
	if slices.Contains(c.Serial, "") {
		return errors.New("a name in Serial is empty")
	}
	for i, s := range c.Warm {
		if s.Run == nil {
			return fmt.Errorf("step %d of Warm, %q, has no function", i+1, s.Name)
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

// queueOf chooses where a function runs.
func (e *Executor) queueOf(function string) *queue {
	if len(e.serial) == 0 {
		return e.slots
	}
	module, _, _ := strings.Cut(function, ":")
	if e.serial[function] || e.serial[module] {
		return e.lane
	}
	return e.slots
}

// Call runs a function of Python, as the page of the package says, and returns its
// result. Arguments stay the caller's, and must not be changed before it returns; what
// Python keeps of an array's memory it holds for itself. The caller owns the arrays in
// the result (Release). Not to be called with the GIL held.
func (e *Executor) Call(ctx context.Context, function string, args ...any) (any, error) {
	if ctx.Err() != nil {
		return nil, e.notBegun(ctx, function)
	}
	if e.closed.Load() {
		return nil, &Error{Function: function, Kind: ErrClosed}
	}
	j, err := e.newJob(ctx, function, args)
	if err != nil {
		return nil, &Error{Function: function, Err: err}
	}
	defer j.release()
	q := e.queueOf(function)
	if err := q.enter(j, e.config.Wait); err != nil {
		if errors.Is(err, ErrFull) {
			e.counters.refused.Add(1)
			return nil, ErrFull
		}
		if ctx.Err() != nil {
			return nil, e.notBegun(ctx, function)
		}
		if errors.Is(err, ErrClosed) {
			return nil, &Error{Function: function, Kind: ErrClosed}
		}
		return nil, &Error{Function: function, Err: err}
	}
	select {
	case <-j.ended:
		return j.result, j.err
	case <-ctx.Done():
	}
	return e.leave(ctx, q, j)
}

// leave is what a caller does when its context has ended.
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
	if j.read != nil { // the arguments are the caller's again when it returns
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
	e.stuck(q, j)
	return nil, &Error{Function: j.function, Kind: ErrStuck,
		Err: fmt.Errorf("%w, and %v later its slot was still in it", context.Cause(ctx), e.config.Grace)}
}

// notBegun takes the caller's context, which has ended: the job's, made of it, ends a moment
// later.
func (e *Executor) notBegun(ctx context.Context, function string) error {
	e.counters.notBegun.Add(1)
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return &Error{Function: function, Kind: python.ErrNotBegun, Err: err}
}

// Ready waits until the warm-up is done. Errors: the step's that failed, ErrClosed, and
// the context's.
func (e *Executor) Ready(ctx context.Context) error {
	select {
	case <-e.warm.over:
	case <-ctx.Done():
		return &Error{Kind: ErrWarming, Err: context.Cause(ctx)}
	}
	if err := e.warm.failed(); err != nil {
		return &Error{Err: err}
	}
	return nil
}

// Health implements Runner: nil when calls can be expected to be served, else an *Error
// that says why not, cheap enough for every probe.
func (e *Executor) Health() error {
	if e.closed.Load() {
		return &Error{Kind: ErrClosed}
	}
	if _, err := python.Start(); err != nil { // started it is: the error says that it has ended
		return &Error{Err: err}
	}
	if err := e.warm.health(); err != nil {
		return &Error{Kind: ErrWarming, Err: err}
	}
	for _, q := range e.queues() {
		if free, stuck := q.counts(); free == 0 && stuck > 0 {
			_, function, age := q.runs()
			if function == "" {
				continue // it has ended just now
			}
			return &Error{Kind: ErrStuck, Err: fmt.Errorf("no slot of the %s is free of calls that go on past their deadlines; %s has run for %v",
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
	s.WarmDone, s.WarmAll = e.warm.progress()
	for _, q := range e.queues() {
		free, stuck := q.counts()
		s.Slots += free
		s.Stuck += stuck
		s.Waiting += q.size()
	}
	return s
}

// Close implements Runner. Until ctx ends, calls that wait and run come to their end;
// then those that wait get ErrClosed, those that run are interrupted, and Config.Grace
// is waited once more. The error says how many calls still run, ErrStuck. Further calls
// of Close do the same, with what is left.
func (e *Executor) Close(ctx context.Context) error {
	e.closed.Store(true)
	e.slots.close()
	if e.lane != nil {
		e.lane.close()
	}
	over := e.ended()
	select {
	case <-over:
	case <-ctx.Done():
		cause := &Error{Kind: ErrClosed, Err: errors.New("it was not done when Close's context ended")}
		e.cancel(cause)
		for _, q := range e.queues() {
			end(append(q.takeAll(), q.interruptAll(cause)...), func(j *job) error { return &Error{Function: j.function, Kind: ErrClosed} })
		}
		timer := time.NewTimer(e.config.Grace)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			n, age, function := e.runs()
			if n == 0 && e.warm.isOver() { // nothing holds the threads up
				<-over
				break
			}
			return &Error{Kind: ErrStuck, Err: fmt.Errorf("%d calls still run, the oldest, %s, for %v; their threads stay until they end",
				n, function, age.Round(time.Millisecond))}
		}
	}
	e.cancel(&Error{Kind: ErrClosed})
	e.functions.Range(func(name, o any) bool {
		if _, mine := e.functions.LoadAndDelete(name); mine {
			o.(*callable).object.Release()
		}
		return true
	})
	return nil
}

// queues lists what there is.
func (e *Executor) queues() []*queue {
	if e.lane == nil {
		return []*queue{e.slots}
	}
	return []*queue{e.lane, e.slots}
}

// runs returns how many calls run and the oldest of them: for how long, and its function.
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
