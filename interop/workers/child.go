package workers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/internal/values"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// marker is set in the environment of a worker, and not in that of programs that it starts.
const marker = "USMBRIDGE_WORKER"

// setup is the first message to a worker.
type setup struct {
	Python     python.Environment
	Path       [][]byte // JSON would replace bytes that are not UTF-8
	Modules    []Module
	Import     []string
	Warm       []string
	MaxMessage int
	Memory     Memory
}

// isWorker reports whether this process was started as a worker. It is set before any function of
// the program runs, because Main removes the marker.
var isWorker = os.Getenv(marker) != ""

// mainCalled records the call of Main.
var mainCalled atomic.Bool

// Main runs the worker in a process that a Pool has started, and does not return there. In other
// processes it returns immediately. A program that makes Pools calls Main first in its main
// function: New returns an error otherwise.
func Main() {
	mainCalled.Store(true)
	if !isWorker {
		return
	}
	if err := os.Unsetenv(marker); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		exit(1)
	}
	signal.Notify(make(chan os.Signal, 1), deaf...)
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		exit(1)
	}
	exit(0)
}

// exit ends the process without the exit handlers of C, which os.Exit runs in builds with -race. The
// destructors of SYCL's libraries are among them, and crash if an object of SYCL remains.
func exit(code int) { syscall.Exit(code) }

// child is the worker's side of a Pool.
type child struct {
	wire    *wire
	control *wire
	setup   setup
	py      *python.Interpreter
	exec    *executor.Executor
	lender  lender
	usm     *share.Server // opens USM; made for the first USM that arrives

	mu       sync.Mutex
	current  uint64
	cancel   context.CancelCauseFunc // of the current call
	canceled uint64                  // the call of the last toCancel; it may not have been read yet
	quitting bool
	tasks    map[uint64]context.CancelCauseFunc
}

var (
	errCancelled = errors.New("its caller's context has ended")
	errQuit      = errors.New("the worker is being ended")
)

// work serves calls until the message to end.
func work() error {
	conn, control, err := inherited()
	if err != nil {
		return fmt.Errorf("it was not started by a Pool: %w", err)
	}
	c := &child{wire: newWire(conn, maxMessage), control: newWire(control, maxMessage), tasks: map[uint64]context.CancelCauseFunc{}}
	m, err := c.wire.read()
	if err != nil {
		return fmt.Errorf("its maker: %w", err)
	}
	if m.kind != toSetup {
		return fmt.Errorf("%w: kind %d before the set-up", ErrMessage, m.kind)
	}
	if err := parseJSON(m, &c.setup); err != nil {
		return err
	}
	c.wire.max = c.setup.MaxMessage
	go c.listen()
	if err := c.start(); err != nil {
		_ = c.fail(c.wire, atFailed, 0, err) // the reader notices the end of the connection
		c.end()
		exit(1)
	}
	if err := c.wire.send(atReady, 0); err != nil {
		return err
	}
	c.serveAll()
	c.end()
	return nil
}

// serveAll makes one call after the other, on this goroutine, until the message to quit.
func (c *child) serveAll() {
	for {
		m, err := c.wire.read()
		if err != nil {
			c.mu.Lock()
			quitting := c.quitting
			c.mu.Unlock()
			if quitting {
				return
			}
			lostMaker(err)
		}
		if m.kind != toCall {
			fmt.Fprintf(os.Stderr, "worker: %v: kind %d for a call\n", ErrMessage, m.kind)
			killOwnGroup()
		}
		ctx := c.begin(m.call)
		c.serve(ctx, m.call, &decoder{b: m.payload})
	}
}

// lostMaker ends this process after the end of a connection.
func lostMaker(err error) {
	if !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "worker: its maker:", err)
	}
	killOwnGroup()
}

// listen reads the control connection until it ends. Then it ends this process, even if Python is
// busy.
func (c *child) listen() {
	for {
		m, err := c.control.read()
		if err != nil {
			lostMaker(err)
		}
		if m.kind == toTask {
			go c.beginTask(m)()
			continue
		}
		c.mu.Lock()
		switch m.kind {
		case toCancel:
			if cancel := c.tasks[m.call]; cancel != nil {
				cancel(errCancelled)
				break
			}
			c.canceled = m.call
			if c.current == m.call && c.cancel != nil {
				c.cancel(errCancelled)
			}
		case toQuit:
			c.quitting = true
			for _, cancel := range c.tasks {
				cancel(errQuit)
			}
			if c.cancel != nil {
				c.cancel(errQuit)
			}
			_ = c.wire.conn.CloseRead() // serveAll makes a call that has arrived, and ends
		}
		c.mu.Unlock()
	}
}

// start starts Python and runs the warm-up. It reports each step.
func (c *child) start() error {
	s := &c.setup
	c.tell(progress{State: Importing, Step: "Python " + s.Python.Version.String()})
	_, _ = syclobj.ConfigureOpenCL(filepath.Join(s.Python.Prefix, "lib")) // nothing is loaded yet
	if err := pymodule.Register(pymodule.SetInterprocess()); err != nil {
		return err
	}
	py, err := python.Start(python.WithEnvironment(&s.Python))
	if err != nil {
		return err
	}
	c.py = py
	server, err := share.Listen(context.Background(), "", c.options(nil))
	if err != nil {
		return err
	}
	c.lender = lender{server: server, audience: segment.PeersWrite, maxCopies: s.Memory.Result}
	memmgr.SetDefaultLimit(s.Memory.limit())
	go c.reportMemory()
	if c.exec, err = executor.New(py, executor.Config{Queue: 1, Grace: time.Duration(math.MaxInt64), Steps: c.steps()}); err != nil {
		return err
	}
	return c.exec.Ready(context.Background())
}

func (c *child) options(q *syclobj.Queue) share.Options {
	return share.Options{AsHost: true, Queue: q, MaxPeers: 4 * maxWorkers}
}

func (c *child) tell(p progress) {
	_ = c.wire.sendJSON(atState, 0, p) // the reader notices that its maker is gone
}

// steps runs on the thread of Python before the first call.
func (c *child) steps() (steps []executor.Step) {
	s := &c.setup
	add := func(p progress, f func(context.Context, *python.Interpreter) error) {
		steps = append(steps, executor.Step{Name: p.State + " " + p.Step, Run: func(ctx context.Context, py *python.Interpreter) error {
			c.tell(p)
			return f(ctx, py)
		}})
	}
	if len(s.Path) > 0 {
		add(progress{State: Importing, Step: "sys.path"}, func(_ context.Context, py *python.Interpreter) error {
			_, err := py.Run("import os, sys\nsys.path[:0] = map(os.fsdecode, path)", python.Vars{"path": s.Path})
			return err
		})
	}
	for _, m := range s.Modules {
		add(progress{State: Importing, Step: m.Name}, func(_ context.Context, py *python.Interpreter) error {
			o, err := py.Module(m.Name, m.Source)
			o.Release()
			return err
		})
	}
	for _, name := range s.Import {
		add(progress{State: Importing, Step: name}, func(_ context.Context, py *python.Interpreter) error {
			o, err := py.Import(name)
			o.Release()
			return err
		})
	}
	for i, name := range s.Warm {
		add(progress{State: Warming, Step: name, Done: i}, func(ctx context.Context, py *python.Interpreter) error {
			return calls.Warm(ctx, py, name)
		})
	}
	return steps
}

// begin returns the context of a call, which listen cancels.
func (c *child) begin(id uint64) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current, c.cancel = id, cancel
	switch {
	case c.quitting:
		cancel(errQuit)
	case c.canceled == id:
		cancel(errCancelled)
	}
	return ctx
}

// finished ends the context of the call.
func (c *child) finished() {
	c.mu.Lock()
	cancel := c.cancel
	c.current, c.cancel = 0, nil
	c.mu.Unlock()
	cancel(nil)
}

func (c *child) serve(ctx context.Context, id uint64, d *decoder) {
	result, err := c.run(ctx, d)
	e := newEncoder(c.setup.MaxMessage)
	var out lent
	if err == nil {
		if err = e.Encode(result); err == nil {
			out, err = c.lender.lend(ctx, 0, e.arrays)
			err = afterCall(ctx, err)
		}
		values.Release(result)
		if err != nil {
			err = fmt.Errorf("result: %w", err)
		}
	}
	err = ofContext(ctx, err)
	c.finished()
	if err == nil {
		var head []byte
		for _, n := range []uint64{out.traffic.Handles, out.traffic.Copies, out.traffic.Bytes} {
			head = binary.AppendUvarint(head, n)
		}
		if err = c.wire.send(atResult, id, head, out.table, e.bytes()); err != nil {
			c.lender.revoke(out.handles)
		}
		if errors.Is(err, ErrTooLong) {
			err = c.fail(c.wire, atError, id, fmt.Errorf("result: %w", err))
		}
	} else {
		err = c.fail(c.wire, atError, id, err)
	}
	if err != nil { // the answer cannot be sent
		fmt.Fprintln(os.Stderr, "worker: answering:", err)
		killOwnGroup()
	}
	if len(d.arrays) > 0 {
		// Memory of the program that Python code showed to other libraries goes back now, while no call runs.
		owner.Settle()
	}
}

// fail sends an error to the Pool, shortened if it is longer than a message may be.
func (c *child) fail(to *wire, k kind, id uint64, err error) error {
	f := describe(err)
	if err = to.sendJSON(k, id, f); errors.Is(err, ErrTooLong) {
		f.shorten()
		err = to.sendJSON(k, id, f)
	}
	return err
}

// run makes the call.
func (c *child) run(ctx context.Context, d *decoder) (any, error) {
	entries, err := d.table()
	if err != nil {
		return nil, err
	}
	arrays, err := openAll(ctx, entries, c.server)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", python.ErrNotBegun, err)
		}
		return nil, fmt.Errorf("arguments: %w", err)
	}
	defer releaseAll(arrays)
	d.arrays = arrays
	function, args, err := d.call()
	if err != nil {
		return nil, err
	}
	if limit := c.setup.Memory.Call; limit != 0 {
		memory := arena.New(arena.Options{Name: function, Limit: limit, Choose: choose})
		defer memory.End()
		ctx = arena.NewContext(ctx, memory)
	}
	result, err := c.exec.Call(ctx, function, args...)
	if err == nil {
		err = afterCall(ctx, written(ctx, arrays))
	}
	return result, err
}

// choose returns the memory of arrays that a call makes: memory that other processes can map, unless the device cannot
// share it.
func choose(q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	p, err := segment.Default(q, kind, segment.PeersWrite)
	if err != nil {
		p, err = memmgr.Default(q, kind)
	}
	if err != nil {
		return nil, err // not a nil *Pool in an interface
	}
	return p, nil
}

// memoryPeriod is the time between two looks at the memory of the process.
const memoryPeriod = 500 * time.Millisecond

// reportMemory sends the memory that the pools hold when it has changed.
func (c *child) reportMemory() {
	for last := int64(0); ; time.Sleep(memoryPeriod) {
		stats := memmgr.TotalStats()
		if now := stats.ReservedBytes.Current; now != last {
			last = now
			_ = c.control.send(atMemory, 0, binary.LittleEndian.AppendUint64(nil, uint64(now))) // listen notices its end
		}
	}
}

// written waits for writes of this library to the arguments, so that the caller sees them. The
// executor has already waited for those of dpctl and dpnp.
func written(ctx context.Context, arrays []*usmarray.Array) error {
	for _, a := range arrays {
		if a.ReadOnly() {
			continue
		}
		if err := a.Buffer().WaitContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

// server returns the server that opens arrays of other processes.
func (c *child) server(isUSM bool) (*share.Server, error) {
	if !isUSM {
		return c.lender.server, nil
	}
	if c.usm != nil { // one call at a time
		return c.usm, nil
	}
	rt, err := syclobj.Open()
	if err != nil {
		return nil, err
	}
	var q *syclobj.Queue
	for _, d := range rt.Devices() {
		if info := d.Info(); q == nil && info.Backend == syclobj.BackendOpenCL && info.Type == syclobj.TypeCPU {
			if q, err = d.DefaultQueue(); err != nil {
				return nil, err
			}
		}
	}
	c.usm, err = share.Listen(context.Background(), "", c.options(q))
	return c.usm, err
}

// end ends Python as at the end of a program.
func (c *child) end() {
	if c.exec != nil {
		_ = c.exec.Close(context.Background())
	}
	if c.py != nil {
		_ = c.py.Close()
	}
	for _, s := range []*share.Server{c.lender.server, c.usm} {
		if s != nil {
			_ = s.Close()
		}
	}
}
