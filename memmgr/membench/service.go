//go:build cgo && linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
)

const (
	serviceTenants  = 4
	serviceWorkers  = 64
	serviceDeadline = time.Second
)

// serviceLoad is what a service does to a pool: 64 goroutines for 4 tenants, each
// of whose requests takes one to four buffers, large and small, with a deadline,
// and gives them back.
type serviceLoad struct {
	pool    *memmgr.Pool
	tenants [serviceTenants]memmgr.Resource
	limit   int64 // of the pool, 0 for none
	hard    int64 // of each tenant
	inUse   [serviceTenants]atomic.Int64
	waiting [serviceWorkers]blocking
	served  atomic.Int64
	failed  atomic.Int64
	waits   int64
	touch   bool // memory that can be written is

	// For the account of who is blocked; only where somebody watches.
	watched  bool
	holding  [serviceWorkers][4]holding
	released releases
}

// blocking is an allocation under way, for the one who watches.
type blocking struct {
	size  atomic.Int64 // 0: there is none
	order atomic.Int64 // of its start
	_     [48]byte
}

var serviceOrder atomic.Int64

func newServiceLoad(limit, hard uint64) *serviceLoad {
	s := &serviceLoad{limit: int64(limit), hard: int64(hard), watched: limit != 0 && limit < 1<<34}
	options := []memmgr.PoolOption{memmgr.WithDecay(0)}
	if limit != 0 {
		options = append(options, memmgr.WithLimit(limit))
	}
	s.pool = memmgr.NewPool(newAddresses(), options...)
	for i := range s.tenants {
		s.tenants[i] = s.pool
		// All have the same weight and no soft limit: else it would be meant that some
		// wait while there is room.
		if hard != 0 {
			tenant, err := s.pool.NewTenant(string(rune('a'+i)), memmgr.TenantOptions{Hard: hard})
			exitOn(err)
			s.tenants[i] = tenant
		}
	}
	return s
}

func (s *serviceLoad) close() {
	for _, r := range s.tenants {
		if t, ok := r.(*memmgr.Tenant); ok {
			exitOn(t.Close())
		}
	}
	closePool(s.pool)
}

// brackets is what the one who watches saw.
type brackets struct {
	blocked time.Duration // longest time that a request was blocked while there was room for it
	awake   time.Duration // the same without the time that the watch itself was kept from running
	noop    time.Duration // longest that it was
	size    int64         // bytes of the request that was blocked longest without it
	ready   time.Duration // longest that a request had not returned although nobody waited in the pool
	beyond  time.Duration // longest without the time until any place for it could have been free
	account []string      // of what was in the way of the one that was blocked longest
	worst   []string      // of the one with the longest time beyond
}

// told heads an account.
func (*brackets) told(which string, lines []string) []string {
	if lines == nil {
		return nil
	}
	return append([]string{"service, " + which + ":"}, lines...)
}

// run keeps the load up for a time.
func (s *serviceLoad) run(d time.Duration) (seen brackets) {
	var stop atomic.Bool
	var workers, watch sync.WaitGroup
	for g := range serviceWorkers {
		workers.Go(func() { s.work(g, &stop) })
	}
	if s.watched {
		watch.Go(func() { seen = s.watch(&stop) })
	}
	time.Sleep(d)
	stop.Store(true)
	workers.Wait()
	watch.Wait()
	s.waits = s.pool.Stats().WaitLatency.Count
	return seen
}

func (s *serviceLoad) work(g int, stop *atomic.Bool) {
	rng := rand.New(rand.NewPCG(uint64(g), 64))
	i := g % serviceTenants
	for !stop.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), serviceDeadline)
		var held [4]memmgr.Buffer
		n := 0
		for range 1 + rng.IntN(len(held)) {
			b, err := s.allocate(g, i, ctx, serviceSize(rng))
			if err != nil {
				s.failed.Add(1)
				break
			}
			held[n] = b
			if s.touch {
				mem := unsafe.Slice((*byte)(b.Data()), b.Size())
				mem[0], mem[len(mem)-1] = byte(g), byte(g)
			}
			if s.watched {
				s.holding[g][n].take(b)
			}
			n++
		}
		runtime.Gosched() // others come while the buffers are in use
		for k, b := range held[:n] {
			if s.touch {
				mem := unsafe.Slice((*byte)(b.Data()), b.Size())
				if mem[0] != byte(g) || mem[len(mem)-1] != byte(g) {
					exitOn(fmt.Errorf("%d bytes at %#x are somebody else's too", b.Size(), b.Address()))
				}
			}
			if s.watched {
				s.released.note(b)
				s.holding[g][k].address.Store(0)
			}
			s.inUse[i].Add(-int64(b.Size()))
			b.Release()
		}
		cancel()
		s.served.Add(1)
	}
}

// serviceSize is log-uniform from 256 bytes to 4 MiB; one in 64 is larger.
func serviceSize(rng *rand.Rand) uintptr {
	if rng.IntN(64) == 0 {
		return uintptr(16+rng.IntN(9)) << 20
	}
	top := uintptr(256) << rng.IntN(15)
	return top/2 + uintptr(rng.Int64N(int64(top/2)))
}

func (s *serviceLoad) allocate(g, i int, ctx context.Context, size uintptr) (memmgr.Buffer, error) {
	x := &s.waiting[g]
	if s.limit != 0 {
		x.order.Store(serviceOrder.Add(1))
		x.size.Store(int64(size))
	}
	b, err := memmgr.New(s.tenants[i], memmgr.Request{Size: size, Context: ctx})
	if err == nil {
		s.inUse[i].Add(int64(b.Size()))
	}
	if s.limit != 0 {
		x.size.Store(0)
	}
	return b, err
}

// watchPause is how often the watch looks; longer steps are time that it was kept from
// running, like everybody else.
const watchPause = 200 * time.Microsecond

// suspicious is how long a request seems to be blocked until the pool is asked.
const suspicious = 5 * time.Millisecond

// watch looks all the time who is blocked. There is room for a request when it fits
// below both limits although everybody who came before it is served first. How long
// that goes on without a break is what counts. A request that has not returned while
// nobody waits in the pool is not blocked there: it waits for a processor. That is
// asked of the pool for those who seem to be blocked for long.
func (s *serviceLoad) watch(stop *atomic.Bool) (seen brackets) {
	var blocked, awake [serviceWorkers]time.Duration
	var was [serviceWorkers]int64
	var inquiries [serviceWorkers]*inquiry
	var longest time.Duration
	end := func(g int) {
		q := inquiries[g]
		inquiries[g] = nil
		if q == nil {
			seen.beyond = max(seen.beyond, awake[g])
			return
		}
		f := q.end(s)
		if f.beyond > seen.beyond {
			seen.beyond, seen.worst = f.beyond, f.lines
		}
		if awake[g] > longest {
			longest, seen.account = awake[g], f.lines
		}
	}
	last := time.Now()
	for !stop.Load() {
		if slices.Max(awake[:]) > suspicious && s.pool.Stats().NumWaiting == 0 {
			seen.ready = max(seen.ready, slices.Max(awake[:]))
			clear(blocked[:])
			clear(awake[:])
			clear(inquiries[:])
		}
		if open := slices.ContainsFunc(inquiries[:], func(q *inquiry) bool { return q != nil }); !open {
			s.released.stop()
		}
		time.Sleep(watchPause)
		at := time.Now()
		step := at.Sub(last)
		last = at
		seen.noop = max(seen.noop, step-watchPause)
		counts := min(step, 5*watchPause)
		for g := range s.waiting {
			size, order := s.waiting[g].size.Load(), s.waiting[g].order.Load()
			if size == 0 || order != was[g] || !s.hasRoom(g, size, order) {
				end(g)
				was[g], blocked[g], awake[g] = order, 0, 0
				continue
			}
			blocked[g] += step
			awake[g] += counts
			seen.blocked = max(seen.blocked, blocked[g])
			if awake[g] > seen.awake {
				seen.awake, seen.size = awake[g], size
			}
			if q := inquiries[g]; q != nil {
				q.step(s, at, counts)
			} else if awake[g] > suspicious {
				inquiries[g] = s.inquire(g, size, awake[g])
			}
		}
	}
	return seen
}

func (s *serviceLoad) hasRoom(g int, size, order int64) bool {
	pool, tenant := s.limit-size, s.hard-size
	for i := range s.inUse {
		n := s.inUse[i].Load()
		pool -= n
		if i == g%serviceTenants {
			tenant -= n
		}
	}
	for other := range s.waiting {
		x := &s.waiting[other]
		if n := x.size.Load(); n != 0 && x.order.Load() < order {
			pool -= n
			if other%serviceTenants == g%serviceTenants {
				tenant -= n
			}
		}
	}
	return pool >= 0 && tenant >= 0
}
