package memmgr

import "sync"

// later runs jobs that wait for work on a device, one after the other, on a
// goroutine that exists while there are any. Release never waits; this does.
type laterQueue struct {
	mu      sync.Mutex
	jobs    []laterJob
	running bool
	idle    sync.Cond
}

type laterJob struct {
	sync  Synchronizer
	event uintptr
	run   func()
}

var later = func() *laterQueue {
	q := &laterQueue{}
	q.idle.L = &q.mu
	return q
}()

// after runs f once the event, which it takes, is done.
func (q *laterQueue) after(s Synchronizer, event uintptr, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, laterJob{s, event, f})
	if !q.running {
		q.running = true
		go q.work()
	}
}

func (q *laterQueue) work() {
	for {
		q.mu.Lock()
		if len(q.jobs) == 0 {
			q.running = false
			q.idle.Broadcast()
			q.mu.Unlock()
			return
		}
		job := q.jobs[0]
		q.jobs = q.jobs[1:]
		q.mu.Unlock()
		// A failure of the work is told to those who wait for the work; here
		// only its end matters.
		_ = job.sync.WaitEvent(job.event)
		job.sync.ReleaseEvent(job.event)
		job.run()
	}
}

// flush waits until every job handed in has run.
func (q *laterQueue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.running {
		q.idle.Wait()
	}
}

// Flush waits until memory that was released with work pending, and memory that
// C dropped, is back in its resources. For tests, reports and orderly ends.
func Flush() {
	if table := holders.table.Load(); table != nil {
		for _, h := range (*table)[1:] {
			if h != nil {
				h.list.Sync()
			}
		}
	}
	wrapped.list().Sync()
	later.flush()
}
