package tlsf

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// check compares each link, list and count with the blocks.
func check(t require.TestingT, h *Heap) {
	var c Counts
	inLists := map[int32]bool{}
	for tier := range h.tiers {
		checkBins(t, h, tier, inLists)
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
			require.Equal(t, r.free && !seg.closed, inLists[i])
			if r.free {
				c.FreeBlocks++
				c.FreeUnits += uint64(r.size)
				if r.dirty() {
					c.DirtyUnits += uint64(r.size)
				}
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

// checkBin compares the links of a bin and returns its records.
// checkBins checks the bins of a tier and adds their blocks to all.
func checkBins(t require.TestingT, h *Heap, tier int, all map[int32]bool) {
	b := h.tiers[tier]
	for l := range b.heads {
		for s := range b.heads[l] {
			head := b.heads[l][s]
			require.Equal(t, head != 0, b.sub[l]&(1<<s) != 0)
			for _, i := range checkBin(t, h, head-1) {
				r := h.at(i)
				require.True(t, r.free)
				require.EqualValues(t, tier, h.segments[r.segment].tier)
				bl, bs := bin(r.size)
				require.Equal(t, [2]int{l, s}, [2]int{bl, bs})
				all[i] = true
			}
		}
		require.Equal(t, b.sub[l] != 0, b.top&(1<<l) != 0)
	}
}

func checkBin(t require.TestingT, h *Heap, root int32) (all []int32) {
	if root == none {
		return nil
	}
	if h.at(root).size < listUnits {
		before := none
		for i := root; i != none; i = h.at(i).b {
			require.Equal(t, before, h.at(i).a)
			all = append(all, i)
			before = i
		}
		return all
	}
	var walk func(i int32)
	walk = func(i int32) {
		if i == none {
			return
		}
		for _, child := range []int32{h.at(i).a, h.at(i).b} {
			require.True(t, child == none || priority(child) < priority(i), "not a heap by priority")
		}
		walk(h.at(i).a)
		if len(all) > 0 {
			require.True(t, less(h.at(all[len(all)-1]), h.at(i)), "not in order")
		}
		all = append(all, i)
		walk(h.at(i).b)
	}
	walk(root)
	return all
}

func TestRecordIsThirtyTwoBytes(t *testing.T) { require.EqualValues(t, 32, unsafe.Sizeof(record{})) }

func TestBinsAreOrderedAndTight(t *testing.T) {
	last := -1
	for u := uint32(1); u < 1<<17; u++ {
		l, s := bin(u)
		require.GreaterOrEqual(t, l*subCount+s, last)
		last = l*subCount + s
	}
}

func TestBestFitInTheLowestPlace(t *testing.T) {
	for _, units := range []uint32{3, 40, 1000} {
		var h Heap
		h.AddSegment(1<<30, 1<<16, 1, false)
		h.AddSegment(1<<20, 1<<16, 1, false)
		// Holes of one size in both segments, kept apart by blocks in use.
		var holes []int32
		for range 20 {
			holes = append(holes, h.Alloc(units, 1))
			require.GreaterOrEqual(t, h.Alloc(1, 1), int32(0))
			holes = append(holes, h.Alloc(units+1, 1))
			require.GreaterOrEqual(t, h.Alloc(1, 1), int32(0))
		}
		lowest := holes[0]
		for _, k := range rand.Perm(len(holes)) {
			h.Free(holes[k])
		}
		check(t, &h)
		i := h.Alloc(units, 1)
		require.EqualValues(t, units*Unit, h.Size(i))
		if units >= listUnits {
			require.Equal(t, h.Address(lowest), h.Address(i))
		}
		for range 19 {
			i = h.Alloc(units, 1)
			require.EqualValues(t, units*Unit, h.Size(i), "a larger hole was cut while one fits exactly")
			require.Less(t, h.Address(i)-1<<30, uintptr(1<<16*Unit))
		}
		check(t, &h)
	}
}

func TestABlockThatFitsIsFound(t *testing.T) {
	// Every size from 1024 to 1055 units lies in one bin, the one that fits last.
	var h Heap
	h.AddSegment(1<<30, 34000, 1, false)
	var holes []int32
	for size := uint32(1024); size <= 1055; size++ {
		holes = append(holes, h.Alloc(size, 1))
		h.Alloc(1, 1)
	}
	for h.Alloc(1, 1) >= 0 {
	}
	for _, i := range holes {
		h.Free(i)
	}
	require.GreaterOrEqual(t, h.Alloc(1055, 1), int32(0))
	require.EqualValues(t, -1, h.Alloc(1055, 1))
	require.EqualValues(t, 1054*Unit, h.Largest())
	check(t, &h)
}

func TestAnAlignedPlaceIsFound(t *testing.T) {
	// Of many holes that are too small for any alignment the last lies well.
	var h Heap
	h.AddSegment(0x1000*Unit, 40000, 1, false)
	var holes []int32
	for range 300 {
		for h.skip(h.at(h.find(1, h.tiers)), 64) != 1 {
			h.Alloc(1, 1)
		}
		holes = append(holes, h.Alloc(64, 1))
		h.Alloc(1, 1)
	}
	for h.skip(h.at(h.find(1, h.tiers)), 64) != 0 {
		h.Alloc(1, 1)
	}
	last := h.Alloc(64, 1)
	for h.Alloc(1, 1) >= 0 {
	}
	for _, i := range append(holes, last) {
		h.Free(i)
	}
	at := h.Address(last)
	require.EqualValues(t, -1, h.Alloc(64, 64), "looks at some only")
	i := h.AllocAny(64, 64)
	require.GreaterOrEqual(t, i, int32(0))
	require.Equal(t, at, h.Address(i))
	check(t, &h)
	require.EqualValues(t, -1, h.AllocAny(64, 64))
}

func TestPurgedBlocksStayPurgedUntilTheyMerge(t *testing.T) {
	var h Heap
	h.AddSegment(1<<30, 1000, 1, false)
	a, b, c := h.Alloc(100, 1), h.Alloc(100, 1), h.Alloc(100, 1)
	h.Alloc(1, 1)
	dirty := func(age uint32) (all []int32) {
		var at Cursor
		for {
			i, ended := h.NextDirty(&at, age)
			if ended {
				return all
			}
			if i >= 0 {
				all = append(all, i)
			}
		}
	}
	rest := dirty(0)
	require.Len(t, rest, 1)
	h.Take(rest[0])
	require.False(t, h.GiveBack(rest[0], true))
	require.Empty(t, dirty(0))
	require.Zero(t, h.Counts().DirtyUnits)

	h.Tick = 70000
	h.Free(a)
	h.Free(c)
	h.Tick += 5
	require.ElementsMatch(t, []int32{a, c}, dirty(0))
	require.Len(t, dirty(5), 2)
	require.Empty(t, dirty(6))
	h.Take(a)
	h.GiveBack(a, true)
	require.Equal(t, []int32{c}, dirty(0))
	// A cut of a purged block leaves a purged rest.
	d := h.Alloc(40, 1)
	require.Equal(t, h.Address(a), h.Address(d))
	require.Equal(t, []int32{c}, dirty(0))
	check(t, &h)
	h.Free(b)
	require.Len(t, dirty(0), 1, "all three merged: the youngest counts")
	require.Empty(t, dirty(1))
	check(t, &h)
	h.Free(d)
	check(t, &h)
}

func TestTreesStayFlat(t *testing.T) {
	// A tree without balance would become a list if blocks are added in the order
	// of their addresses.
	var h Heap
	h.AddSegment(1<<30, 1<<24, 1, false)
	var all []int32
	for range 100000 {
		all = append(all, h.Alloc(40, 1))
		h.Alloc(1, 1)
	}
	for _, i := range all {
		h.Free(i)
	}
	var depth func(i int32) int
	depth = func(i int32) int {
		if i == none {
			return 0
		}
		return 1 + max(depth(h.at(i).a), depth(h.at(i).b))
	}
	l, s := bin(40)
	require.Less(t, depth(h.tiers[0].heads[l][s]-1), 60, "of 2 log2(n) = 33 on average")
}

func TestAllocInTakesTheBeginning(t *testing.T) {
	var h Heap
	h.AddSegment(1<<20, 10, 1, false)
	n := h.AddSegment(1<<30+4*Unit, 100, 1, false)
	require.Negative(t, h.AllocIn(n, 101, 1))
	require.Negative(t, h.AllocIn(n, 97, 8))
	for _, align := range []uint32{1, 8} {
		i := h.AllocIn(n, 10, align)
		require.Equal(t, n, h.Segment(i))
		require.EqualValues(t, 1<<30+8*Unit-4*Unit*uintptr(align%2), h.Address(i))
		check(t, &h)
		require.True(t, h.Free(i))
	}
	i := h.AllocIn(n, 100, 4)
	require.GreaterOrEqual(t, i, int32(0))
	require.Negative(t, h.AllocIn(n, 1, 1))
	check(t, &h)
}

// A segment above Shared serves only requests that are not much smaller, so that it becomes empty again.
func TestSmallBlocksStayOutOfLargeSegments(t *testing.T) {
	h := Heap{Shared: 1024}
	segments := map[int32]uint32{}
	for i, units := range []uint32{1024, 1025, 2048, 2049, 1 << 20} {
		segments[h.AddSegment(1<<40*uintptr(i+1), units, units, false)] = units
	}
	for _, units := range []uint32{1, 31, 32, 63, 64, 127, 128, 512, 1 << 15, 1 << 16} {
		for {
			i := h.Alloc(units, 1)
			if i < 0 {
				break
			}
			size := segments[h.Segment(i)]
			require.True(t, size <= 1024 || size <= units*pinPart, "%d units in a segment of %d", units, size)
		}
		check(t, &h)
	}
	full := h.Counts().FreeUnits
	require.EqualValues(t, -1, h.Alloc(1, 1))
	i := h.AllocAny(1, 1)
	require.GreaterOrEqual(t, i, int32(0), "any segment serves a request that would fail")
	require.Equal(t, full-1, h.Counts().FreeUnits)
	check(t, &h)
}

// A closed segment serves no requests, so that its blocks merge. A block is
// available as soon as enough free memory is contiguous.
func TestAClosedSegmentBecomesWhole(t *testing.T) {
	for _, align := range []uint32{1, 64} {
		var h Heap
		n := h.AddSegment(1<<30, 1024, 1, false)
		var all []int32
		for range 16 {
			all = append(all, h.Alloc(64, 1))
		}
		for i := 0; i < len(all); i += 2 {
			h.Free(all[i])
		}
		h.SetClosed(n, true)
		check(t, &h)
		require.Negative(t, h.Alloc(1, 1))
		require.Negative(t, h.AllocClosed(128, align))
		require.Zero(t, h.Largest())
		h.Free(all[5])
		i := h.AllocClosed(128, align)
		require.GreaterOrEqual(t, i, int32(0))
		require.EqualValues(t, 128*Unit, h.Size(i))
		require.Negative(t, h.AllocClosed(128, align), "the rest is too small")
		check(t, &h)
		require.Negative(t, h.Alloc(1, 1))
		h.SetClosed(n, false)
		check(t, &h)
		h.Free(i)
		for i := 1; i < len(all); i += 2 {
			if i != 5 {
				h.Free(all[i])
			}
		}
		require.EqualValues(t, 1, h.Counts().EmptySegments)
		h.SetClosed(n, true)
		require.Negative(t, h.Alloc(1, 1))
		h.RemoveSegment(n)
		check(t, &h)
		h.SetClosed(n, false) // of a number that no segment has
		require.Equal(t, n, h.AddSegment(1<<30, 1024, 1, false))
		require.GreaterOrEqual(t, h.Alloc(1, 1), int32(0), "a new segment is open")
		check(t, &h)
	}
}

// anyFits looks at every free block of open segments.
func anyFits(h *Heap, units, align uint32) bool {
	found := false
	h.Walk(func(int32, uintptr, uintptr) {}, func(p Piece) {
		base, _ := h.SegmentBase(p.Segment)
		at := base + p.Offset
		skip := -at & (uintptr(align)*Unit - 1)
		seg := &h.segments[p.Segment]
		found = found || p.Free && !seg.closed && p.Size >= uintptr(units)*Unit+skip
	})
	return found
}

// run plays a script: bytes choose allocations, frees and segments.
func run(t require.TestingT, script []byte) {
	var h Heap
	if len(script)%2 == 1 {
		h.Shared = 2048
	}
	type live struct {
		block int32
		lo    uintptr
		hi    uintptr
	}
	var all []live
	base := uintptr(1 << 20)
	var cursor Cursor
	for k := 0; k+2 < len(script); k += 3 {
		op, x, y := script[k]%8, uint32(script[k+1]), uint32(script[k+2])
		switch {
		case op == 0 && h.counts.Segments < 8:
			h.AddSegment(base, 16+x*64+y, 16+y*64, x%2 == 0)
			base += 1 << 24
		case op == 1 && y%4 != 0:
			if n := h.SegmentNumbers(); n > 0 {
				h.SetClosed(int32(y/4)%n, y%4 == 1)
			}
			if i := h.AllocClosed(1+x, 1<<(x%4)); i >= 0 {
				require.True(t, h.segments[h.Segment(i)].closed)
				require.EqualValues(t, 1+x, h.at(i).size)
				require.Zero(t, h.Address(i)%(Unit<<(x%4)))
				h.Free(i)
			}
		case op == 1:
			for n := range h.segments {
				if seg := &h.segments[n]; seg.units != 0 && seg.used == 0 {
					h.RemoveSegment(int32(n))
					break
				}
			}
		case op < 5:
			units, align := 1+x*y%300, uint32(1)<<(y%6)
			fits := anyFits(&h, units, align)
			i := h.Alloc(units, align)
			if i >= 0 {
				require.LessOrEqual(t, int(h.segments[h.Segment(i)].tier), h.tier(units))
			} else {
				i = h.AllocAny(units, align)
			}
			require.Equal(t, fits, i >= 0, "%d units aligned to %d", units, align)
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
		case op == 5:
			h.Tick += y
			if i, _ := h.NextDirty(&cursor, x%4); i >= 0 {
				r := *h.at(i)
				require.True(t, r.free && !r.purged)
				h.Take(i)
				h.GiveBack(i, y%2 == 0)
			} else {
				cursor = Cursor{}
			}
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
	if len(all) > 0 {
		require.Panics(t, func() { h.Free(all[0].block) }, "a second free")
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
