package workers

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/calls"
	"github.com/usmbridge/usmbridge/interop/python"
)

// task is a call of Pool.CallEach.
type task struct {
	Function, Text string

	key string
}

// taskBit distinguishes the numbers of tasks from those of calls.
const taskBit = 1 << 63

// CallEach implements executor.Runner. One worker makes the call first, and then the others at the same time, so that a
// function that ends its process ends one. In a worker the call has a thread of its own, beside the calls of Call. If it
// still runs Config.Grace after the end of ctx, the worker is killed and the error is ErrStuck. A worker that starts
// later repeats the last successful call of each key, in the order in which the keys were first used, each within
// Config.StartTime. A call that raises there is reported in Config.Output, and one that ends the process or
// does not end is not repeated again. Calls with the empty key are not repeated, and not ordered.
func (p *Pool) CallEach(ctx context.Context, key, function, text string) (string, error) {
	if err := calls.CheckFunction(function); err != nil {
		return "", &executor.Error{Package: "workers", Op: function, Err: err}
	}
	if key != "" {
		turn := p.each.Take(ctx, key)
		if turn == nil {
			return "", &executor.Error{Package: "workers", Op: function, Kind: python.ErrNotBegun, Err: operr.Ended(ctx)}
		}
		defer turn.Leave()
	}
	k := &task{key: key, Function: function, Text: text}
	done := map[*process]bool{}
	result := ""
	for first := true; ; first = false {
		batch, err := p.batch(ctx, k, done, first)
		if err != nil || batch == nil {
			return result, err
		}
		errs := make([]error, len(batch))
		var all sync.WaitGroup
		for i, r := range batch {
			done[r] = true
			all.Go(func() {
				text, err := r.do(ctx, k)
				if errs[i] = err; i == 0 && first {
					result = text
				} else if errors.Is(err, ErrDied) {
					errs[i] = nil // the next process of the worker repeats it
				}
			})
		}
		all.Wait()
		if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
			return "", errs[i]
		}
	}
}

// batch returns the processes that make a call of CallEach next: one if it is the first, and then all that are ready. nil:
// every worker has made it, or will make it when it starts.
func (p *Pool) batch(ctx context.Context, k *task, done map[*process]bool, first bool) (batch []*process, err error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, &executor.Error{Package: "workers", Op: k.Function, Kind: executor.ErrClosed}
		}
		for _, w := range p.workers {
			if r := w.process; r != nil && w.state == Ready && !done[r] && !r.spoiled.Load() {
				batch = append(batch, r)
			}
		}
		if len(batch) == 0 && !first {
			p.keep(k)
		}
		err, changed := p.hopeless(), p.watch()
		p.mu.Unlock()
		switch {
		case len(batch) > 0 && first:
			i := slices.IndexFunc(batch, func(r *process) bool { return slices.Contains(p.idleNow(), r) })
			return batch[max(i, 0):][:1], nil
		case len(batch) > 0 || !first:
			return batch, nil
		case err != nil:
			return nil, &executor.Error{Package: "workers", Op: k.Function, Err: err}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &executor.Error{Package: "workers", Op: k.Function, Kind: python.ErrNotBegun, Err: operr.Ended(ctx)}
		}
	}
}

// idleNow returns the idle processes.
func (p *Pool) idleNow() []*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.idle)
}

// keep records a successful call for workers that start later. Without a key, it is for those that start now: they may
// have repeated an earlier one. mu is held.
func (p *Pool) keep(k *task) {
	if k.key == "" {
		for _, w := range p.workers {
			if w.process != nil && w.state != Ready {
				w.extra = append(w.extra, k)
			}
		}
		return
	}
	if i := slices.IndexFunc(p.standing, func(s *task) bool { return s.key == k.key }); i >= 0 {
		p.standing[i] = k
	} else {
		p.standing = append(p.standing, k)
	}
}

// repeat makes the calls of CallEach in a worker that starts, and then makes it ready.
func (w *worker) repeat(r *process) error {
	p := w.pool
	for done := map[*task]bool{}; ; {
		k := w.nextRepeat(done)
		if k == nil {
			return nil
		}
		done[k] = true
		ctx, cancel := context.WithTimeout(p.ctx, p.config.StartTime)
		_, err := r.do(ctx, k)
		cancel()
		switch {
		case err == nil:
		case p.ctx.Err() != nil:
			return err
		case errors.Is(err, ErrDied), errors.Is(err, executor.ErrStuck):
			w.skipped[k] = true
			return fmt.Errorf("repeating %s: %w", k.key, err)
		default:
			p.outlet.write(fmt.Appendf(nil, "worker %d: repeating %s: %v\n", w.index, k.key, err))
		}
	}
}

// nextRepeat returns the next call of repeat. If there is none, the worker is ready.
func (w *worker) nextRepeat(done map[*task]bool) *task {
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.change()
	if len(w.extra) > 0 {
		k := w.extra[0]
		w.extra = w.extra[1:]
		return k
	}
	for _, k := range p.standing {
		if !done[k] && !w.skipped[k] {
			w.state, w.step = Warming, k.key
			return k
		}
	}
	w.state, w.step, w.warmed = Ready, "", len(p.config.Warm)
	return nil
}

// do makes a call of CallEach in one process.
func (r *process) do(ctx context.Context, k *task) (string, error) {
	answers := make(chan message, 1)
	r.mu.Lock()
	id := taskBit | r.lastTask
	r.lastTask++
	gone := r.gone || r.deaf
	if !gone {
		r.tasks[id] = answers
	}
	r.mu.Unlock()
	c := call{process: r, function: k.Function}
	i := &interrupt{process: r, call: id, grace: r.worker.pool.config.Grace}
	defer i.stop(context.AfterFunc(ctx, i.put))
	if gone {
		return "", c.died()
	}
	if err := r.control.sendJSON(toTask, id, k); errors.Is(err, ErrTooLong) {
		r.mu.Lock()
		delete(r.tasks, id)
		r.mu.Unlock()
		return "", &executor.Error{Package: "workers", Op: k.Function, Err: err}
	} // after another error, no answer arrives
	m, ok := <-answers
	switch {
	case !ok && i.killed():
		return "", c.stuck(ctx, i)
	case !ok:
		return "", c.died()
	case m.kind == atTask:
		return string(m.payload), nil
	}
	var f failure
	if err := parseJSON(m, &f); err != nil {
		r.kill(err)
		return "", c.died()
	}
	why := executor.ErrClosed
	if ctx.Err() != nil {
		why = operr.Ended(ctx)
	}
	return "", &executor.Error{Package: "workers", Op: k.Function, Err: f.err(why)}
}

// listen delivers the answers of do, and notes the memory of the process, until the control connection ends.
func (r *process) listen() {
	for {
		m, err := r.control.read()
		if err == nil && m.kind == atMemory && len(m.payload) == 8 {
			r.memory.Store(binary.LittleEndian.Uint64(m.payload))
			continue
		}
		if err == nil && m.kind != atTask && m.kind != atTaskError {
			err = fmt.Errorf("%w: kind %d on the control connection", ErrMessage, m.kind)
		}
		if errors.Is(err, ErrMessage) {
			r.kill(err)
		}
		r.mu.Lock()
		if err != nil {
			r.deaf = true
			for _, answers := range r.tasks {
				close(answers)
			}
			r.tasks = nil
			r.mu.Unlock()
			return
		}
		if answers := r.tasks[m.call]; answers != nil {
			delete(r.tasks, m.call)
			m.payload = bytes.Clone(m.payload)
			answers <- m
		}
		r.mu.Unlock()
	}
}

// beginTask registers the call of a message of do, and returns a function that makes it.
func (c *child) beginTask(m message) func() {
	k := new(task)
	if err := parseJSON(m, k); err != nil {
		return func() { c.answerTask(m.call, "", err) }
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks[m.call] = cancel
	return func() {
		text, err := c.exec.CallEach(ctx, fmt.Sprint(m.call), k.Function, k.Text)
		err = ofContext(ctx, err)
		c.mu.Lock()
		delete(c.tasks, m.call)
		c.mu.Unlock()
		cancel(nil)
		c.answerTask(m.call, text, err)
	}
}

// answerTask sends the outcome of a call of do. If that fails, listen notices the end of the connection.
func (c *child) answerTask(id uint64, text string, err error) {
	if err == nil {
		err = c.control.send(atTask, id, []byte(text))
		if !errors.Is(err, ErrTooLong) {
			return
		}
	}
	_ = c.fail(c.control, atTaskError, id, err)
}
