package memmgr_test

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

const (
	serviceTenants  = 4
	serviceWorkers  = 64
	serviceDeadline = time.Second
)

// serviceLoad simulates a service on a pool: 64 goroutines serve requests of 4 tenants. Each request
// allocates one to four buffers, large and small, with a deadline, and releases them.
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
	touch   bool // write to the memory
	watched bool
}

// blocking is an allocation of a worker that is in progress.
type blocking struct {
	size  atomic.Int64 // 0 for none
	order atomic.Int64 // number of the allocation, in the order of their starts
	_     [48]byte
}

var serviceOrder atomic.Int64

// newServiceLoad makes a load with limits that requests reach often. All tenants have the same weight and no
// soft limit. Otherwise some would wait by design while there is room.
func newServiceLoad(upstream memmgr.Resource) *serviceLoad {
	s := &serviceLoad{limit: 256 << 20, hard: 80 << 20}
	s.pool = memmgr.NewPool(upstream, memmgr.WithName("service"), memmgr.WithDecay(0), memmgr.WithLimit(uint64(s.limit)))
	for i := range s.tenants {
		tenant, err := s.pool.NewTenant(string(rune('a'+i)), memmgr.TenantOptions{Hard: uint64(s.hard)})
		must(err)
		s.tenants[i] = tenant
	}
	return s
}

// must stops the process: the load runs on many goroutines.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// BenchmarkService runs a mixed load for eight seconds, or the time in USMBRIDGE_HUNT in seconds, and reports how
// long requests were blocked although there was room. docs/benchmarks.md has the value of a minute, with the bound
// of 50 ms.
func BenchmarkService(b *testing.B) {
	memmgr.RecordStacks(0)
	for b.Loop() {
		s := newServiceLoad(new(addressOnly))
		s.watched = true
		seen := s.run(huntTime(b, 8*time.Second))
		s.close()
		for name, d := range map[string]time.Duration{
			"blocked-ms": seen.blocked, "noop-ms": seen.noop, "awake-ms": seen.awake, "unready-ms": seen.ready,
		} {
			b.ReportMetric(float64(d)/1e6, name)
		}
		b.ReportMetric(float64(s.served.Load()), "requests")
	}
}

// huntTime returns the time of a load: that of USMBRIDGE_HUNT, or a default.
func huntTime(t testing.TB, d time.Duration) time.Duration {
	text := os.Getenv("USMBRIDGE_HUNT")
	if text == "" {
		return d
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal("USMBRIDGE_HUNT: ", err)
	}
	return time.Duration(seconds) * time.Second
}

// addressOnly is an upstream that returns addresses without memory. Its calls are cheap, so a measurement shows
// the cost of the pool.
type addressOnly struct{ used atomic.Uintptr }

// AddressOnly tells the pool that the addresses must not be read or written.
func (*addressOnly) AddressOnly() bool { return true }

func (*addressOnly) Place() *syclobj.Place { return syclobj.HostPlace() }

func (a *addressOnly) Allocate(r memmgr.Request) (memmgr.Block, error) {
	size, align := max(r.Size, 1), max(r.Alignment(), 4096)
	at := (1<<(bits.UintSize-20) + a.used.Add(size+align) - size) &^ (align - 1) // a range that the process does not use
	return memmgr.Block{Address: at, Size: size, Requested: r.Size, Align: r.Alignment()}, nil
}

func (*addressOnly) Free(memmgr.Block) {}

func (s *serviceLoad) close() {
	for _, r := range s.tenants {
		if t, ok := r.(*memmgr.Tenant); ok {
			must(t.Close())
		}
	}
	must(s.pool.Close())
}

// brackets are the results of watch.
type brackets struct {
	blocked time.Duration // longest time that a request was blocked while there was room for it
	awake   time.Duration // the same without the time in which the watch did not run
	noop    time.Duration // longest time in which the watch did not run
	ready   time.Duration // longest time in which a request did not return although none waited in the pool
}

// run runs the load for a time.
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
			n++
		}
		runtime.Gosched() // other workers run while the buffers are in use
		for _, b := range held[:n] {
			if s.touch {
				mem := unsafe.Slice((*byte)(b.Data()), b.Size())
				if mem[0] != byte(g) || mem[len(mem)-1] != byte(g) {
					must(fmt.Errorf("%d bytes at %#x are in use by two requests", b.Size(), b.Address()))
				}
			}
			s.inUse[i].Add(-int64(b.Size()))
			b.Release()
		}
		cancel()
		s.served.Add(1)
	}
}

// serviceSize returns a log-uniform size from 128 bytes to 4 MiB. One in 64 is 16 to 24 MiB.
func serviceSize(rng *rand.Rand) uintptr {
	if rng.IntN(64) == 0 {
		return uintptr(16+rng.IntN(9)) << 20
	}
	top := uintptr(256) << rng.IntN(15)
	return top/2 + uintptr(rng.Int64N(int64(top/2)))
}

func (s *serviceLoad) allocate(g, i int, ctx context.Context, size uintptr) (memmgr.Buffer, error) {
	x := &s.waiting[g]
	x.order.Store(serviceOrder.Add(1))
	x.size.Store(int64(size))
	b, err := memmgr.New(s.tenants[i], memmgr.Request{Size: size, Context: ctx})
	if err == nil {
		s.inUse[i].Add(int64(b.Size()))
	}
	x.size.Store(0)
	return b, err
}

// watchPause is the time between two checks of the watch. A longer step means that the watch did not
// run for a while, as may have happened to the workers too.
const watchPause = 200 * time.Microsecond

// suspicious is the time that a request seems to be blocked before watch reads the state of the pool.
const suspicious = 5 * time.Millisecond

// watch measures how long requests are blocked while there is room for them. There is room if the
// request fits below both limits after all requests before it are served. The longest uninterrupted
// time counts. If no request waits in the pool, a request that has not returned waits for a
// processor, which does not count. watch checks that only after the time suspicious, because it
// reads the state of the pool.
func (s *serviceLoad) watch(stop *atomic.Bool) (seen brackets) {
	var blocked, awake [serviceWorkers]time.Duration
	var was [serviceWorkers]int64
	last := time.Now()
	for !stop.Load() {
		if slices.Max(awake[:]) > suspicious && s.pool.Stats().NumWaiting == 0 {
			seen.ready = max(seen.ready, slices.Max(awake[:]))
			clear(blocked[:])
			clear(awake[:])
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
				was[g], blocked[g], awake[g] = order, 0, 0
				continue
			}
			blocked[g] += step
			awake[g] += counts
			seen.blocked = max(seen.blocked, blocked[g])
			seen.awake = max(seen.awake, awake[g])
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
