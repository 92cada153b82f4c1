//go:build cgo && linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
)

// trace is a sequence of requests and frees of varying sizes. The work "traces" compares what the pool, UMF's disjoint
// pool and models of PyTorch's and RMM's pools reserve for each.
type trace struct {
	name      string
	bound     float64 // of reserved to requested bytes at the peak; 0: 1.05 times the lower model's
	refused   float64 // percent of the requests that may be refused below a limit of 1.2 times the peak
	which     []uint32
	sizes     []uint64 // 0 frees the slot
	slots     []int64  // bytes in use
	now, peak int64

	held, spare []int // slots of replacing and randomAllocations
}

func (t *trace) add(slot int, size int64) {
	t.which, t.sizes = append(t.which, uint32(slot)), append(t.sizes, uint64(size))
	if slot >= len(t.slots) {
		t.slots = append(t.slots, 0)
	}
	t.now += size - t.slots[slot]
	t.slots[slot], t.peak = size, max(t.peak, t.now)
}

// allocate adds a request to an empty slot.
func (t *trace) allocate(size int64) {
	if len(t.spare) == 0 {
		t.spare = append(t.spare, len(t.slots))
	}
	slot := t.spare[len(t.spare)-1]
	t.held, t.spare = append(t.held, slot), t.spare[:len(t.spare)-1]
	t.add(slot, size)
}

// freeRandom frees a random slot.
func (t *trace) freeRandom(rng *rand.Rand) {
	k, last := rng.IntN(len(t.held)), len(t.held)-1
	slot := t.held[k]
	t.held[k] = t.held[last]
	t.held, t.spare = t.held[:last], append(t.spare, slot)
	t.add(slot, 0)
}

// replacing keeps about live bytes in use: it frees random blocks before each request.
func replacing(t trace, n int, live int64, size func(rng *rand.Rand, part float64) int64) trace {
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range n {
		s := size(rng, float64(i)/float64(n))
		for t.now+s > live {
			t.freeRandom(rng)
		}
		t.allocate(s)
	}
	return t
}

// randomAllocations is random_allocations of RMM: 2n steps, 73 % of which allocate while there are blocks to free, with
// uniform sizes of 1 byte to most bytes.
func randomAllocations(n int, most int64, seed uint64) (t trace) {
	rng := rand.New(rand.NewPCG(seed, 73))
	for range 2 * n {
		if len(t.held) == 0 || rng.Float64() < 0.73 {
			t.allocate(1 + rng.Int64N(most))
		} else {
			t.freeRandom(rng)
		}
	}
	return t
}

// steps allocates 72 tensors, whose sizes scale with a random batch, and frees them in reverse order, 400 times.
func steps(t trace) trace {
	rng := rand.New(rand.NewPCG(7, 7))
	t.add(0, 512<<20) // weights
	for range 400 {
		scale, n := 0.2+0.8*rng.Float64(), 0
		for i := range 24 {
			for _, mib := range []float64{4 + float64(i%6)*3, 0.5, 96 / float64(2+i%5)} {
				n++
				t.add(n, int64(mib*scale*(1<<20)))
			}
		}
		for ; n > 0; n-- {
			t.add(n, 0)
		}
	}
	return t
}

// growing replaces a buffer by a larger one, to which it is copied, again and again.
func growing(t trace) trace {
	t.add(0, 16<<20)
	for i := range 59 {
		t.add(1-i%2, int64(19+3*i)<<20)
		t.add(i%2, 0)
	}
	return t
}

func allTraces() []trace {
	const mib = 1 << 20
	logUniform := func(least, most float64) func(*rand.Rand, float64) int64 {
		return func(rng *rand.Rand, _ float64) int64 { return int64(least * math.Pow(most/least, rng.Float64())) }
	}
	mixed := func(rng *rand.Rand, _ float64) int64 {
		if rng.IntN(10) < 7 {
			return 512 + rng.Int64N(mib)
		}
		return mib + rng.Int64N(63*mib)
	}
	drift := func(rng *rand.Rand, part float64) int64 {
		return int64((1 + part*31) * (64 << 10) * (0.5 + rng.Float64()))
	}
	return []trace{
		replacing(trace{name: "16 to 64 MiB", refused: 6.4}, 4000, 1<<30, func(rng *rand.Rand, _ float64) int64 { return 16*mib + rng.Int64N(48*mib) }),
		replacing(trace{name: "70 % below 1 MiB, 30 % to 64 MiB", refused: 2.5}, 20000, 1<<30, mixed),
		steps(trace{name: "steps of 72 tensors"}),
		replacing(trace{name: "log-uniform 256 B to 64 MiB", refused: 1.8}, 20000, 1<<30, logUniform(256, 64*mib)),
		replacing(trace{name: "drift 64 KiB to 2 MiB", bound: 1.4}, 100000, 256*mib, drift),
		replacing(trace{name: "log-uniform 256 B to 4 MiB", bound: 1.6}, 200000, 256*mib, logUniform(256, 4*mib)),
		growing(trace{name: "a buffer grows from 16 to 193 MiB", bound: 1.5}),
	}
}

// replay runs a trace on a pool, which it closes. It returns the pool's counters, the percentage of refused requests, the
// upstream allocations after the bytes in use were first near their peak, and the microseconds of an operation.
func (t *trace) replay(p *memmgr.Pool, touch bool) (s memmgr.Stats, refused float64, late int64, us float64) {
	defer closePool(p)
	live := make([]memmgr.Buffer, len(t.slots))
	defer clearBuffers(live)
	now, before, start := int64(0), int64(-1), time.Now()
	for i, slot := range t.which {
		if live[slot].Valid() {
			now -= int64(live[slot].Requested())
			live[slot].Release()
		}
		if t.sizes[i] == 0 {
			continue
		}
		b, err := memmgr.New(p, memmgr.Request{Size: uintptr(t.sizes[i])})
		if err != nil {
			refused++
			continue
		}
		live[slot], now = b, now+int64(t.sizes[i])
		if before < 0 && now >= t.peak*9/10 {
			before = p.Stats().NumDeviceAlloc
		}
		for at := uint64(0); touch && at < t.sizes[i]; at += 4096 {
			*(*byte)(unsafe.Add(b.Data(), at)) = 1
		}
	}
	s, us = p.Stats(), float64(time.Since(start).Microseconds())/float64(len(t.which))
	return s, 100 * refused / (refused + float64(s.Allocation.Allocated)), s.NumDeviceAlloc - before, us
}

func (b *bench) traces() {
	for i, t := range allTraces() {
		row := func(work, unit string, value, bound float64) {
			b.add(result{Work: work, Ours: value, Unit: unit, Ratio: value, Bound: bound})
		}
		ratio := func(bytes int64) float64 { return float64(bytes) / float64(t.peak) }
		var peaks, late []int64
		for range 5 { // where the goroutine ran changes which blocks are cached, and so the outcome
			s, _, n, _ := t.replay(memmgr.NewPool(newAddresses(), memmgr.WithDecay(0)), false)
			peaks, late = append(peaks, s.ReservedBytes.Peak), append(late, n)
		}
		slices.Sort(peaks)
		ours, lower := ratio(peaks[2]), ratio(t.lower())
		b.add(result{Work: t.name + ": reserved to requested", Ours: ours, Name: "PyTorch, RMM", Peer: lower, Ratio: ours, Bound: cmp.Or(t.bound, 1.05*lower)})
		params := deviceParams()
		params.capacity, params.address_only = 1000, 1
		for ; params.max_poolable_size <= 256<<20; params.max_poolable_size *= 64 { // 4 and 256 MiB
			disjoint(params, func(u peer) {
				s := newSlots(len(t.slots))
				defer s.free()
				u.script(s, t.which, t.sizes)
				row(fmt.Sprintf("  UMF, poolable to %d MiB", params.max_poolable_size>>20), "", ratio(u.peak()), 0)
				u.clear(s)
			})
		}
		row("  upstream allocations after the first peak", "", float64(slices.Max(late)), 50)
		if t.refused != 0 {
			_, refused, _, _ := t.replay(memmgr.NewPool(newAddresses(), memmgr.WithDecay(0), memmgr.WithLimit(uint64(t.peak)*6/5)), false)
			row("  refused below a limit of 1.2 times the peak", "%", refused, t.refused)
		}
		if i < 4 {
			_, _, _, us := t.replay(hostPool(), true)
			row("  an operation, pages touched", "us", us, 0)
		}
	}
}

type span struct{ at, size int64 }

// model is a best-fit heap: its free spans in the order of addresses.
type model struct {
	free     []span
	reserved int64
}

// take takes n bytes from the best span, or from a new segment. A rest of less than least bytes stays with them.
func (m *model) take(n, segment, least int64) (x span) {
	best := -1
	for i, f := range m.free {
		if f.size >= n && (best < 0 || f.size < m.free[best].size) {
			best = i
		}
	}
	if best < 0 {
		best, m.free = len(m.free), append(m.free, span{2 * m.reserved, segment}) // not adjacent to another segment
		m.reserved += segment
	}
	x = m.free[best]
	m.free = slices.Delete(m.free, best, best+1)
	if rest := x.size - n; rest >= least {
		m.put(span{x.at + n, rest})
		x.size = n
	}
	return x
}

// put adds a free span and merges it with its neighbours.
func (m *model) put(x span) {
	i, _ := slices.BinarySearchFunc(m.free, x, func(a, b span) int { return int(a.at - b.at) })
	m.free = slices.Insert(m.free, i, x)
	for j := i; j >= max(i-1, 0); j-- {
		if j+1 < len(m.free) && m.free[j].at+m.free[j].size == m.free[j+1].at {
			m.free[j].size += m.free[j+1].size
			m.free = slices.Delete(m.free, j+1, j+2)
		}
	}
}

// run runs a trace on models: take returns the model that serves a request, and the block.
func (t *trace) run(take func(n int64) (*model, span)) {
	of, at := make([]*model, len(t.slots)), make([]span, len(t.slots))
	for i, slot := range t.which {
		if n := int64(t.sizes[i]); n != 0 {
			of[slot], at[slot] = take(n)
			continue
		}
		of[slot].put(at[slot])
	}
}

// lower returns the bytes that the better of two policies reserves. PyTorch: requests to 1 MiB from segments of 2 MiB,
// others below 10 MiB from segments of 20 MiB, the rest from segments of multiples of 2 MiB. RMM: a new segment doubles
// the pool.
func (t *trace) lower() int64 {
	up := func(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
	var small, large, m model
	t.run(func(n int64) (*model, span) {
		switch n = up(n, 512); {
		case n <= 1<<20:
			return &small, small.take(n, 2<<20, 512)
		case n < 10<<20:
			return &large, large.take(n, 20<<20, 1<<20+1)
		}
		return &large, large.take(n, up(n, 2<<20), 1<<20+1)
	})
	t.run(func(n int64) (*model, span) { return &m, m.take(up(n, 256), max(up(n, 256), m.reserved), 1) })
	return min(small.reserved+large.reserved, m.reserved)
}
