package heap

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

const mib = 1 << 20 / block.Unit // in units

// upstream counts the segments of a heap and hands out addresses.
type upstream struct {
	t       *testing.T
	next    uintptr
	held    map[uintptr]Segment
	dropped []uintptr // in order
	emptied int
}

func newHeap(t *testing.T, change func(*Options)) (*Heap, *upstream) {
	f := &front.Front{}
	f.Init(front.DefaultCache)
	u := &upstream{t: t, next: 1 << 32, held: map[uintptr]Segment{}}
	o := Options{
		Shared: 32 * mib, High: math.MaxUint64, Decay: DecayAfter(8), Budget: &f.Budget,
		Cells: Cells{Place: 7, Resource: 5, Flags: owner.HostReadable},
		Drop: func(s Segment) {
			require.Equal(t, u.held[s.Address], s)
			delete(u.held, s.Address)
			u.dropped = append(u.dropped, s.Address)
		},
		Emptied: func() { u.emptied++ },
	}
	if change != nil {
		change(&o)
	}
	h := &Heap{}
	h.Init(o)
	return h, u
}

// grow adds a segment and takes its first block.
func (u *upstream) grow(h *Heap, segment, units uint32) *owner.Cell {
	s := Segment{Address: u.next, Size: uintptr(segment) * block.Unit, Align: 4096, Cookie: uint64(len(u.held)) + 9}
	s.Requested = s.Size
	u.next += 1 << 36
	u.held[s.Address] = s
	c := h.Grow(s, false, units, 1, block.NoClass)
	require.NotNil(u.t, c)
	use(c)
	return c
}

func use(c *owner.Cell) { block.SetState(c, block.InUse) }

func TestACellHasTheFactsOfItsHeap(t *testing.T) {
	h, u := newHeap(t, nil)
	c := u.grow(h, 4*mib, mib)
	require.EqualValues(t, 1<<32, c.Address)
	require.EqualValues(t, 1<<20, c.Size)
	require.EqualValues(t, 7, c.Place)
	require.EqualValues(t, 5, c.Resource)
	require.EqualValues(t, owner.HostReadable, c.Flags())
	require.EqualValues(t, 4<<20, h.Reserved())
	require.EqualValues(t, 3<<20, h.FreeBytes())
	require.EqualValues(t, 3<<20, h.Largest())
	d := h.Carve(mib, 1, block.NoClass)
	require.Equal(t, c.Address+1<<20, d.Address)
	use(d)
	require.Nil(t, h.Carve(3*mib, 1, block.NoClass))
	var pieces []uintptr
	h.Walk(func(base, size uintptr, closed bool) {
		require.EqualValues(t, 1<<32, base)
		require.EqualValues(t, 4<<20, size)
		require.False(t, closed)
	}, func(p tlsf.Piece) {
		pieces = append(pieces, p.Size)
		if !p.Free {
			require.Contains(t, []uint32{c.Index(), d.Index()}, p.User)
		}
	})
	require.Equal(t, []uintptr{1 << 20, 1 << 20, 2 << 20}, pieces)
	h.Cache(c, block.NoClass)
	h.Cache(d, block.NoClass)
	require.EqualValues(t, 4<<20, h.EmptyBytes())
	require.EqualValues(t, 4<<20, h.Release(0))
	require.Empty(t, u.held)
	require.Zero(t, h.Reserved())
}

// Counts of segments and peaks, and the free blocks in segments that are in use.
func TestCounts(t *testing.T) {
	h, u := newHeap(t, nil)
	a, b := u.grow(h, 2*mib, mib), u.grow(h, 4*mib, mib)
	require.Equal(t, Counts{
		Segments: 2, SegmentsPeak: 2, Added: 2, ReservedPeak: 6 << 20, BytesAdded: 6 << 20,
		SplitBlocks: 2, SplitBytes: 4 << 20, SplitPeak: 2, SplitBytesPeak: 4 << 20,
	}, h.Counts())
	h.Cache(a, block.NoClass)
	h.Release(0)
	h.ResetPeaks()
	require.Equal(t, Counts{
		Segments: 1, SegmentsPeak: 1, Added: 2, Dropped: 1, ReservedPeak: 4 << 20, BytesAdded: 6 << 20, BytesDropped: 2 << 20,
		SplitBlocks: 1, SplitBytes: 3 << 20, SplitPeak: 1, SplitBytesPeak: 3 << 20,
	}, h.Counts())
	h.Shut()
	h.Cache(b, block.NoClass)
	require.Equal(t, 1, u.emptied, "segments of a shut heap go back by themselves")
	require.Empty(t, u.held)
}

// Segments out of use go back oldest first: on demand, before growth and above the marks.
func TestSegmentsGoBackOldestFirst(t *testing.T) {
	h, u := newHeap(t, func(o *Options) { o.High, o.Low = 20<<20, 8<<20 })
	var cells []*owner.Cell
	var at []uintptr
	for range 6 {
		cells = append(cells, u.grow(h, 4*mib, 4*mib))
		at = append(at, cells[len(cells)-1].Address)
		h.Tick()
	}
	for _, i := range []int{3, 1, 4, 0, 2} {
		h.Cache(cells[i], block.NoClass)
		h.Tick()
	}
	require.Empty(t, u.dropped)
	h.Cache(cells[5], block.NoClass) // 24 MiB: more than High
	require.Equal(t, []uintptr{at[3], at[1], at[4], at[0]}, u.dropped)
	h.Pay(1<<20, 9<<20)
	require.Len(t, u.dropped, 4, "they cannot pay for the request")
	h.Pay(1<<20, 8<<20)
	require.Equal(t, at[2], u.dropped[4])
	require.Len(t, u.held, 1)
}

func TestDecayOfNothing(t *testing.T) {
	for _, ticks := range []int64{0, -1, math.MinInt64} {
		h, u := newHeap(t, func(o *Options) { o.Decay = DecayAfter(ticks) })
		h.Cache(u.grow(h, mib, mib), block.NoClass)
		require.False(t, h.Decays())
		for range 100 {
			require.False(t, h.Tick())
		}
		require.Len(t, u.held, 1)
	}
}

// Closed segments serve only TakeReserved.
func TestClosedSegmentsServeOneRequest(t *testing.T) {
	h, u := newHeap(t, nil)
	a, b := u.grow(h, 4*mib, 3*mib), u.grow(h, 4*mib, mib)
	require.EqualValues(t, 4<<20, h.CloseSegments(4<<20))
	require.EqualValues(t, 4<<20, h.CloseSegments(4<<20), "they are closed already")
	require.EqualValues(t, 4<<20, h.ClosedBytes())
	require.Equal(t, 1, h.ClosedBlocks(), "equally full: the one with the lower number")
	require.Nil(t, h.Carve(4*mib, 1, block.NoClass))
	require.Nil(t, h.TakeReserved(4*mib, 1, block.NoClass))
	h.Cache(a, block.NoClass)
	h.Cache(b, block.NoClass)
	c := h.TakeReserved(4*mib, 1, block.NoClass)
	require.NotNil(t, c)
	require.EqualValues(t, 4<<20, c.Size)
	use(c)
	h.OpenSegments()
	require.Zero(t, h.ClosedBytes())
	h.Cache(c, block.NoClass)
	require.EqualValues(t, 8<<20, h.Release(0))
}

// Random requests: the list by age and the counts agree with the segments.
func TestRandomUse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h, u := newHeap(t, nil)
	var live []*owner.Cell
	for range 20000 {
		if rng.IntN(2) == 0 && len(live) > 0 {
			i := rng.IntN(len(live))
			c := live[i]
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
			h.Cache(c, block.Class(c))
		} else {
			units := uint32(1 + rng.IntN(4<<rng.IntN(14)))
			class := block.NoClass
			if units <= block.MaxClassUnits {
				class = block.ClassFor(uintptr(units))
				units = block.ClassUnits[class]
			}
			c := h.Carve(units, 1, class)
			if c == nil {
				c = u.grow(h, max(units, 2*mib), units)
				block.SetClass(c, class)
			} else {
				use(c)
			}
			live = append(live, c)
		}
		switch rng.IntN(200) {
		case 0:
			h.Tick()
		case 1:
			h.Flush()
		case 2:
			h.Release(uint64(rng.IntN(8 << 20)))
		case 3:
			h.CloseSegments(uint64(rng.IntN(16 << 20)))
		case 4:
			h.OpenSegments()
		}
	}
	checkAges(t, h)
	for _, c := range live {
		h.Cache(c, block.NoClass)
	}
	h.Flush()
	checkAges(t, h)
	require.Equal(t, h.Reserved(), h.Release(0))
	require.Empty(t, u.held)
	require.Zero(t, h.Reserved())
}

// checkAges checks the list of segments out of use.
func checkAges(t *testing.T, h *Heap) {
	bytes, before := uint64(0), int32(0)
	for n := h.oldest; n != 0; n = h.segments[n-1].newer {
		s := &h.segments[n-1]
		require.True(t, s.listed)
		require.Equal(t, before, s.older)
		if before != 0 {
			require.LessOrEqual(t, h.segments[before-1].idleSince, s.idleSince)
		}
		_, size := h.blocks.SegmentBase(n - 1)
		bytes, before = bytes+uint64(size), n
	}
	require.Equal(t, before, h.newest)
	require.Equal(t, h.EmptyBytes(), bytes)
}
