//go:build cgo && linux

package memmgr_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// reuse checks that memory is not allocated while work of its former user goes on, except to work that the
// queue orders after it.
type reuse struct {
	mu    sync.Mutex
	works []*usedBy
	// pairs are pieces of work on the same memory of which the second must end later.
	pairs [][2]*syclobj.Event
	all   []*syclobj.Event
}

// usedBy is a piece of work on memory.
type usedBy struct {
	from, to uintptr
	event    *syclobj.Event
	last     *syclobj.Queue // the queue of last use of the block, which the next use must follow
}

// given checks the moment at which memory is allocated for a queue, nil for the host. It returns the work
// in progress that the next work must be ordered after.
func (r *reuse) given(b memmgr.Buffer, q *syclobj.Queue) ([]*syclobj.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from, to := b.Address(), b.Address()+uintptr(b.Size())
	var before []*syclobj.Event
	kept := r.works[:0]
	for _, w := range r.works {
		if w.event.Done() {
			continue
		}
		if w.to <= from || w.from >= to {
			kept = append(kept, w)
			continue
		}
		if q == nil || w.last != q || q.Properties()&syclobj.InOrder == 0 {
			return nil, fmt.Errorf("memory at %#x was given out while work on %#x to %#x goes on", from, w.from, w.to)
		}
		before = append(before, w.event) // whose end that of the next work implies
	}
	clear(r.works[len(kept):])
	r.works = kept
	return before, nil
}

func (r *reuse) used(works ...*usedBy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.works = append(r.works, works...)
	for _, w := range works {
		r.all = append(r.all, w.event)
	}
}

func (r *reuse) follows(before []*syclobj.Event, next *syclobj.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range before {
		r.pairs = append(r.pairs, [2]*syclobj.Event{e, next})
	}
}

// ordered checks the order of all pairs, as far as it can be observed.
func (r *reuse) ordered() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pairs {
		if p[1].Done() && !p[0].Done() {
			return fmt.Errorf("work on reused memory ended before that of its former user")
		}
	}
	return nil
}

// step allocates for a queue or for the host, lets one or two queues work on the memory, and releases it.
func (r *reuse) step(p *memmgr.Pool, queues []*syclobj.Queue, rng *rand.Rand) error {
	q := queues[rng.IntN(len(queues))]
	request := memmgr.Request{Size: []uintptr{700, 5000, 300 << 10}[rng.IntN(3)], Queue: q}
	if rng.IntN(4) == 0 {
		request.Queue = nil
	}
	b, err := memmgr.New(p, request)
	if err != nil {
		return err
	}
	before, err := r.given(b, request.Queue)
	if err != nil {
		return err
	}
	var works []*usedBy
	for range 1 + rng.IntN(2) {
		ev, err := q.Memset(b.Data(), 1, 64)
		if err != nil {
			return err
		}
		r.follows(before, ev)
		before = nil
		works = append(works, &usedBy{b.Address(), b.Address() + uintptr(b.Size()), ev, nil})
		if err := b.SetPending(q, ev); err != nil {
			return err
		}
		if rng.IntN(3) > 0 {
			break
		}
		q = queues[rng.IntN(len(queues))]
		b.UsedOn(q) // follows the pending work
	}
	if rng.IntN(8) == 0 {
		b.SetExported()
	}
	for _, w := range works {
		w.last = q
	}
	r.used(works...)
	b.Release()
	return nil
}

// Several goroutines submit random work to in-order and out-of-order queues, and it ends in random order.
// Memory is reused only in the order of queues.
func TestFakeReuseFollowsTheQueues(t *testing.T) {
	onFake(t, sycltest.OneCPU, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		for round := range uint64(4) {
			var queues []*syclobj.Queue
			for i := range 4 {
				order := syclobj.InOrder
				if i == 3 {
					order = syclobj.OutOfOrder
				}
				queues = append(queues, testsycl.NewQueue(t, rt, order))
			}
			p := newPool(t, testsycl.USM(t, queues[0], syclobj.USMDevice), memmgr.WithCache(4<<20))
			fake.Hold(true)
			var r reuse
			const goroutines, steps, most = 3, 250, 30
			done := make(chan error, goroutines)
			for g := range uint64(goroutines) {
				go func() {
					rng := rand.New(rand.NewPCG(round, g))
					for range steps {
						for fake.Pending() > most { // a barrier has room for so many
							runtime.Gosched()
						}
						if err := r.step(p, queues, rng); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			rng := rand.New(rand.NewPCG(round, 99))
			for left := goroutines; left > 0; {
				select {
				case err := <-done:
					require.NoError(t, err)
					left--
				default:
					if n := fake.Pending(); n > most/2 {
						fake.Release(rng.IntN(n))
					}
					require.NoError(t, r.ordered())
				}
			}
			for n := fake.Pending(); n > 0; n = fake.Pending() {
				fake.Release(rng.IntN(n))
				require.NoError(t, r.ordered())
			}
			fake.ReleaseAll()
			fake.Hold(false)
			for _, e := range r.all {
				require.NoError(t, e.Wait(t.Context()))
				require.NoError(t, e.Close())
			}
			require.NotEmpty(t, r.pairs, "no memory was reused behind work")
		}
	})
}
