package workers

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usmbridge/usmbridge/interop/share"
)

// process is one process of a worker.
type process struct {
	worker  *worker
	cmd     *exec.Cmd
	pid     int
	started time.Time
	wire    *wire // one goroutine at a time has it
	last    uint64
	pipe    *os.File
	output  *output
	overdue atomic.Bool // the context of its call has ended
	spoiled atomic.Bool // it is being killed: nobody else gets it

	over  chan struct{} // closed when it has ended, and death says how
	death *Death

	mu   sync.Mutex
	gone bool  // it has ended, and its number may be another's
	why  error // why it was killed

	// Under Pool.mu:
	function string // in which it is
	began    time.Time
	dead     bool
}

// kill ends the process and what it has started; the first reason stays.
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

// hangUpTime is how long a process may live whose connection is over.
const hangUpTime = time.Second

var errHungUp = errors.New("it closed its connection")

// hungUp is called when the connection is over: mostly because the process has ended, and else
// it is of no use.
func (r *process) hungUp() {
	r.spoiled.Store(true)
	r.endOfItself(hangUpTime)
	r.kill(errHungUp)
}

// outputTime is how long what a process has written is waited for when it has ended: what it
// started may keep the pipe open.
const outputTime = time.Second

// wait waits for the end of the process, and says how it was.
func (r *process) wait() {
	err := awaitExit(r.pid)
	r.mu.Lock()
	r.gone = true
	killGroup(r.pid) // what it started, while the number is its own
	r.mu.Unlock()
	_ = r.cmd.Wait() // tells by an error what ProcessState says
	d := &Death{Worker: r.worker.index, PID: r.pid, After: time.Since(r.started), At: time.Now()}
	if s := r.cmd.ProcessState; s != nil {
		d.Status = s.String()
	} else if err != nil {
		d.Status = err.Error()
	}
	_ = r.pipe.SetReadDeadline(time.Now().Add(outputTime))
	r.output.wait(2 * outputTime)
	d.LastWords = r.output.words()
	// What it has sent is still read; a forked child may keep its end open.
	_ = r.wire.conn.CloseRead()
	_ = r.wire.conn.CloseWrite()
	r.mu.Lock()
	d.Reason = r.why
	r.mu.Unlock()
	r.death = d
	close(r.over)
}

// ending reports whether an error of opening what the process had made is that of its end, which
// it then waits for: the memory may also be of another worker that has ended.
func (r *process) ending(err error) bool {
	if !errors.Is(err, share.ErrDied) && !errors.Is(err, share.ErrClosed) && !errors.Is(err, share.ErrAddress) {
		return false
	}
	while := hangUpTime
	if r.spoiled.Load() {
		while = deathTime
	}
	r.endOfItself(while)
	select {
	case <-r.over:
		return true
	default:
		return r.spoiled.Load()
	}
}

// endOfItself waits until the process has ended, as it is about to, or for a while.
func (r *process) endOfItself(while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-r.over:
	case <-timer.C:
	}
}
