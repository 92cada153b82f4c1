package tlsf

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// check compares every link, list and count with what the blocks say.
func check(t require.TestingT, h *Heap) {
	var c Counts
	inLists := map[int32]bool{}
	for l := range h.heads {
		for s := range h.heads[l] {
			require.Equal(t, h.heads[l][s] != 0, h.sub[l]&(1<<s) != 0)
			before := none
			for i := h.heads[l][s] - 1; i != none; i = h.at(i).b {
				r := h.at(i)
				require.True(t, r.free)
				require.Equal(t, before, r.a)
				bl, bs := bin(r.size)
				require.Equal(t, [2]int{l, s}, [2]int{bl, bs})
				inLists[i] = true
				before = i
			}
		}
		require.Equal(t, h.sub[l] != 0, h.top&(1<<l) != 0)
	}
	for n := range h.segments {
		seg := &h.segments[n]
		if seg.first == none || seg.units == 0 {
			continue
		}
		c.Segments++
		at, before, used := uint32(0), none, int32(0)
		lastFree := false
		for i := seg.first; i != none; i = h.at(i).next {
			r := h.at(i)
			require.Equal(t, at, r.offset)
			require.Equal(t, before, r.prev)
			require.EqualValues(t, n, r.segment)
			require.NotZero(t, r.size)
			require.False(t, r.free && lastFree, "two free neighbours were not merged")
			require.Equal(t, r.free, inLists[i])
			if r.free {
				c.FreeBlocks++
				c.FreeUnits += uint64(r.size)
			} else {
				used++
				c.UsedBlocks++
				c.UsedUnits += uint64(r.size)
			}
			lastFree, before, at = r.free, i, at+r.size
		}
		require.Equal(t, seg.units, at)
		require.Equal(t, seg.used, used)
		if used == 0 {
			c.EmptySegments++
			c.EmptyUnits += uint64(seg.units)
		}
	}
	require.Equal(t, c, h.counts)
}

func TestRecordIsThirtyTwoBytes(t *testing.T) { require.EqualValues(t, 32, unsafe.Sizeof(record{})) }

func TestBinsAreOrderedAndTight(t *testing.T) {
	last := -1
	for u := uint32(1); u < 1<<20; u++ {
		l, s := bin(u)
		require.GreaterOrEqual(t, l*subCount+s, last)
		last = l*subCount + s
		al, as, ok := binAbove(u)
		require.True(t, ok)
		require.GreaterOrEqual(t, al*subCount+as, last)
	}
	_, _, ok := binAbove(^uint32(0))
	require.False(t, ok)
}

func TestFreeSpaceMergesToWholeSegments(t *testing.T) {
	var h Heap
	n := h.AddSegment(1<<20, 1000)
	var all []int32
	for {
		i := h.Alloc(7, 1)
		if i < 0 {
			break
		}
		all = append(all, i)
	}
	require.Len(t, all, 1000/7)
	check(t, &h)
	empties := 0
	for _, k := range rand.Perm(len(all)) {
		if h.Free(all[k]) {
			empties++
		}
	}
	require.Equal(t, 1, empties)
	check(t, &h)
	require.EqualValues(t, 1000*Unit, h.Largest())
	base, units := h.RemoveSegment(n)
	require.EqualValues(t, 1<<20, base)
	require.EqualValues(t, 1000, units)
	check(t, &h)
	require.Panics(t, func() { h.Free(all[0]) })
}

func TestAlignmentLosesNothing(t *testing.T) {
	var h Heap
	h.AddSegment(3*Unit, 1<<16)
	for align := uint32(1); align <= 1<<14; align *= 2 {
		i := h.Alloc(5, align)
		require.GreaterOrEqual(t, i, int32(0))
		require.Zero(t, h.Address(i)%(uintptr(align)*Unit))
		check(t, &h)
		h.Free(i)
		check(t, &h)
		require.EqualValues(t, 1<<16, h.counts.FreeUnits)
		require.Equal(t, 1, h.counts.FreeBlocks)
	}
}

func TestDedicatedSegments(t *testing.T) {
	var h Heap
	i := h.AddUsed(1<<30, 4096)
	check(t, &h)
	require.EqualValues(t, -1, h.Alloc(1, 1))
	base, units := h.RemoveUsed(i)
	require.EqualValues(t, 1<<30, base)
	require.EqualValues(t, 4096, units)
	check(t, &h)
}

// run plays a script: bytes choose allocations, frees and segments.
func run(t require.TestingT, script []byte) {
	var h Heap
	type live struct {
		block int32
		lo    uintptr
		hi    uintptr
	}
	var all []live
	base := uintptr(1 << 20)
	for k := 0; k+2 < len(script); k += 3 {
		op, x, y := script[k]%8, uint32(script[k+1]), uint32(script[k+2])
		switch {
		case op == 0 && h.counts.Segments < 8:
			h.AddSegment(base, 16+x*64+y)
			base += 1 << 24
		case op == 1:
			for _, n := range h.EmptySegmentNumbers(nil) {
				h.RemoveSegment(n)
				break
			}
		case op < 5:
			units, align := 1+x*y%300, uint32(1)<<(y%6)
			i := h.Alloc(units, align)
			if i < 0 {
				break
			}
			lo := h.Address(i)
			require.Zero(t, lo%(uintptr(align)*Unit))
			require.EqualValues(t, uintptr(units)*Unit, h.Size(i))
			for _, o := range all {
				require.True(t, lo+h.Size(i) <= o.lo || o.hi <= lo, "blocks overlap")
			}
			h.SetUser(i, x<<8|y)
			require.Equal(t, x<<8|y, h.User(i))
			all = append(all, live{i, lo, lo + h.Size(i)})
		case len(all) > 0:
			j := int(x) % len(all)
			h.Free(all[j].block)
			all[j] = all[len(all)-1]
			all = all[:len(all)-1]
		}
	}
	check(t, &h)
	for _, l := range all {
		h.Free(l.block)
	}
	check(t, &h)
	require.Equal(t, h.counts.Segments, h.counts.EmptySegments)
}

func TestRandomScripts(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		script := make([]byte, 3*rng.IntN(400))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		run(t, script)
	}
}

func FuzzHeap(f *testing.F) {
	f.Add([]byte{0, 9, 9, 2, 5, 5, 3, 200, 3, 7, 0, 0})
	f.Add([]byte{0, 255, 255, 2, 255, 255, 2, 1, 1, 7, 0, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) { run(t, script) })
}

func BenchmarkAllocFree(b *testing.B) {
	var h Heap
	h.AddSegment(1<<30, 1<<22)
	rng := rand.New(rand.NewPCG(1, 1))
	var slots [1000]int32
	for i := range slots {
		slots[i] = h.Alloc(1+rng.Uint32N(4096), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		k := rng.IntN(len(slots))
		h.Free(slots[k])
		slots[k] = h.Alloc(1+rng.Uint32N(4096), 1)
	}
}
