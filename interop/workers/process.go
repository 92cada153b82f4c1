package workers

import (
	"container/list"
	"errors"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/internal/fair"
	"github.com/usmbridge/usmbridge/interop/share"
)

// process is one process of a worker.
type process struct {
	worker  *worker
	cmd     *exec.Cmd
	pid     int
	started time.Time
	wire    *wire // for one goroutine at a time
	control *wire
	last    uint64
	pipe    *os.File
	output  *output
	overdue atomic.Bool // the context of its call has ended
	memory  atomic.Uint64
	spoiled atomic.Bool // it is being killed: it gets no further call

	over  chan struct{} // closed when the process has ended and death is set
	death *Death

	mu       sync.Mutex
	gone     bool  // the process has ended, and its ID may belong to another one
	why      error // why it was killed
	tasks    map[uint64]chan message
	lastTask uint64
	deaf     bool // the control connection has ended

	// Pool.mu guards the following.
	function string // the function that it runs
	flow     *fair.Flow[list.List]
	began    time.Time
	dead     bool
}

// kill kills the process and its child processes. The reason of the first call is kept.
func (r *process) kill(why error) {
	r.spoiled.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return
	}
	if r.why == nil {
		r.why = why
	}
	killGroup(r.pid)
}

// hangUpTime is how long a process may run after its connection has ended.
const hangUpTime = time.Second

var errHungUp = errors.New("it closed its connection")

// hungUp is called when the connection has ended. Usually the process has ended too; if not, it is
// useless.
func (r *process) hungUp() {
	r.spoiled.Store(true)
	within(hangUpTime, r.over)
	r.kill(errHungUp)
}

// outputTime bounds the wait for the output of a process that has ended: its child processes may
// keep the pipe open.
const outputTime = time.Second

// wait waits for the end of the process and records how it ended.
func (r *process) wait() {
	err := awaitExit(r.pid)
	r.mu.Lock()
	r.gone = true
	killGroup(r.pid) // its child processes, while the ID still belongs to it
	r.mu.Unlock()
	_ = r.cmd.Wait() // ProcessState has the same information
	d := &Death{Worker: r.worker.index, PID: r.pid, After: time.Since(r.started), At: time.Now()}
	if s := r.cmd.ProcessState; s != nil {
		d.Status = s.String()
	} else if err != nil {
		d.Status = err.Error()
	}
	_ = r.pipe.SetReadDeadline(time.Now().Add(outputTime))
	within(2*outputTime, r.output.done) // not without a bound: a Write of Config.Output may block
	d.LastOutput = r.output.last()
	// Read all messages that it has sent; a forked child may keep the connection open.
	_ = r.wire.conn.CloseRead()
	_ = r.wire.conn.CloseWrite()
	_ = r.control.conn.Close()
	r.mu.Lock()
	d.Reason = r.why
	r.mu.Unlock()
	r.death = d
	close(r.over)
}

// ending reports whether memory of the process could not be opened because the process is ending,
// and then waits for its end. The memory may also be of another worker that has ended.
func (r *process) ending(err error) bool {
	if !errors.Is(err, share.ErrDied) && !errors.Is(err, share.ErrClosed) && !errors.Is(err, share.ErrAddress) {
		return false
	}
	while := hangUpTime
	if r.spoiled.Load() {
		while = deathTime
	}
	return within(while, r.over) || r.spoiled.Load()
}

// within waits for a limited time until a channel is closed, and reports whether it is.
func within(while time.Duration, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-time.After(while):
	}
	select { // both may have happened while this goroutine did not run
	case <-c:
		return true
	default:
		return false
	}
}
