package workers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/interop/python"
)

// worker is one worker of a Pool. When its process ends, another one takes its place.
type worker struct {
	pool  *Pool
	index int

	// pool.mu guards the following.
	process  *process // nil if there is none
	state    string
	step     string
	warmed   int // steps of the warm-up that are done
	since    time.Time
	next     time.Time
	held     bool // it was started too often recently
	calls    uint64
	restarts int
	last     *Death
	extra    []*task // calls of CallEach without a key, for the process that starts

	skipped map[*task]bool // calls that ended a process of this worker or did not end
}

// update changes the state of a worker.
func (w *worker) update(f func()) {
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	f()
	w.pool.change()
}

// The shortest and the longest wait before a worker is restarted that has died more than once
// recently. After the first death it is restarted at once.
const (
	shortBackoff = 100 * time.Millisecond
	longBackoff  = 5 * time.Second
)

// supervise keeps a process running until the Pool is closed.
func (w *worker) supervise() {
	p := w.pool
	var deaths []time.Time // within the window
	for first := true; ; first = false {
		w.update(func() {
			w.state, w.step, w.since, w.next, w.held, w.warmed, w.extra = Starting, "", time.Now(), time.Time{}, false, 0, nil
			if !first {
				w.restarts++
			}
		})
		death := w.run()
		if p.ctx.Err() != nil {
			w.update(func() { w.state, w.last = Dead, death })
			return
		}
		now := time.Now()
		deaths = slices.DeleteFunc(deaths, func(t time.Time) bool { return now.Sub(t) >= p.config.Window })
		deaths = append(deaths, now)
		next, held := now, len(deaths) > p.config.Restarts
		switch n := len(deaths); {
		case held:
			next = deaths[n-1-p.config.Restarts].Add(p.config.Window)
		case n > 1:
			next = now.Add(min(shortBackoff<<min(n-2, 16), longBackoff))
		}
		w.update(func() {
			w.state, w.step, w.since, w.next, w.held, w.last = Dead, "", death.At, next, held, death
			if held {
				if err := p.hopeless(); err != nil {
					p.refuse(err)
				}
			}
		})
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			timer.Stop()
			w.update(func() { w.next = time.Time{} })
			return
		}
	}
}

// run starts a process and waits for its end.
func (w *worker) run() *Death {
	p := w.pool
	r, err := w.start()
	if err != nil {
		return &Death{Worker: w.index, Status: "it could not be started", Reason: err, At: time.Now()}
	}
	w.update(func() { w.process = r })
	if err = w.warmUp(r); err == nil {
		err = w.repeat(r)
	}
	if err != nil {
		r.kill(err)
	} else {
		p.give(r)
		select {
		case <-r.over:
		case <-p.ctx.Done():
			w.quit(r)
		}
	}
	<-r.over
	if err != nil && r.death.Reason == nil { // only this function knows the Death of a process that was not ready
		r.death.Reason = err
	}
	w.update(func() {
		w.process, r.dead = nil, true
		w.state, w.step, w.since, w.last = Dead, "", r.death.At, r.death
		if i := slices.Index(p.idle, r); i >= 0 {
			p.idle = slices.Delete(p.idle, i, i+1)
		}
		if r.function == "" { // otherwise the call that uses it closes it
			_ = r.wire.conn.Close()
		}
	})
	return r.death
}

// quit asks a process to exit, and kills it if that takes too long.
func (w *worker) quit(r *process) {
	timer := time.AfterFunc(w.pool.config.Grace, func() {
		r.kill(fmt.Errorf("it did not end within %v after it was asked to", w.pool.config.Grace))
	})
	defer timer.Stop()
	if err := r.control.send(toQuit, 0); err != nil {
		r.kill(fmt.Errorf("asking it to end: %w", err))
	}
	<-r.over
}

// start starts a process and sends it the set-up.
func (w *worker) start() (*process, error) {
	p := w.pool
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd, conns, err := p.starter.start(p.config.Program, p.env, to)
	_ = to.Close()
	if err != nil {
		_ = from.Close()
		return nil, err
	}
	r := &process{
		worker: w, cmd: cmd, pid: cmd.Process.Pid, started: time.Now(), wire: newWire(conns[0], p.config.MaxMessage), control: newWire(conns[1], p.config.MaxMessage),
		pipe: from, output: follow(from, &p.outlet), over: make(chan struct{}), tasks: map[uint64]chan message{},
	}
	go r.wait()
	go r.listen()
	return r, nil
}

// warmUp follows a process until it is ready.
func (w *worker) warmUp(r *process) error {
	p := w.pool
	timer := time.AfterFunc(p.config.StartTime, func() {
		r.kill(fmt.Errorf("it was not ready within %v after its start (Config.StartTime)", p.config.StartTime))
	})
	defer timer.Stop()
	defer context.AfterFunc(p.ctx, func() { r.kill(errors.New("the Pool was closed while it started")) })()
	if err := r.wire.sendJSON(toSetup, 0, &p.setup); errors.Is(err, ErrTooLong) {
		return err
	} // otherwise reading reports the error
	for heard := false; ; heard = true {
		m, err := r.wire.read()
		switch {
		case errors.Is(err, ErrMessage):
			return err
		case err != nil && !heard:
			return errors.New("it ended before its first message; its program must call workers.Main first")
		case err != nil:
			return errors.New("it ended while it started")
		case m.kind == atReady:
			return nil
		case m.kind == atState:
			var at progress
			if err := parseJSON(m, &at); err != nil {
				return err
			}
			if at.State != Importing && at.State != Warming {
				return fmt.Errorf("%w: state %q", ErrMessage, at.State)
			}
			w.update(func() { w.state, w.step, w.warmed = at.State, at.Step, min(max(at.Done, 0), len(p.config.Warm)) })
		case m.kind == atFailed:
			var f failure
			if err := parseJSON(m, &f); err != nil {
				return err
			}
			within(p.config.Grace, r.over)
			return f.err(context.Canceled)
		default:
			return fmt.Errorf("%w: kind %d while it started", ErrMessage, m.kind)
		}
	}
}

// workerEnv returns the environment of workers: that of this process, required variables, and
// Config.Env.
func workerEnv(e *python.Environment, more []string) []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, marker+"=") })
	// Output is not buffered, and a crash prints the Python stack: Death contains both.
	env = append(env, "PYTHONUNBUFFERED=1", "PYTHONFAULTHANDLER=1")
	if e.Prefix != e.BasePrefix {
		env = append(env, "VIRTUAL_ENV="+e.Prefix) // the search path for the SYCL libraries
	}
	env = append(env, more...)
	return append(env, marker+"=1")
}
