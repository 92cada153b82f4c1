package front

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
)

const (
	smallest = 0
	largest  = block.NumClasses - 1 // blocks of 2 MiB
)

func newFront(t *testing.T, cache int64) (*Front, *Depot) {
	before := runtime.GOMAXPROCS(1) // all calls use one shard
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	f := &Front{}
	f.Init(cache)
	return f, &Depot{Budget: &f.Budget}
}

// inUse returns new cells of a class in the state in use.
func inUse(t *testing.T, k, n int) (all []*owner.Cell) {
	for range n {
		c, err := owner.New(nil)
		require.NoError(t, err)
		c.Requested = 100
		block.SetClass(c, k)
		block.SetState(c, block.InHand)
		block.SetState(c, block.InUse)
		all = append(all, c)
	}
	return all
}

// put frees blocks to the front as a pool does, and returns those that leave it for the heap.
func put(t *testing.T, f *Front, d *Depot, k int, cells []*owner.Cell) (surplus int) {
	for _, c := range cells {
		s := f.Enter()
		require.NotNil(t, s)
		s.Put(k, c)
		s.CountPut(k, c)
		if !s.NeedsWork(k) {
			s.Leave()
			continue
		}
		_, full, out := f.AfterPut(s, k)
		if full.N != 0 {
			require.True(t, d.Push(full, k))
		}
		surplus += free(&out)
	}
	return surplus
}

// free recycles the blocks of a stack.
func free(s *block.Stack) (blocks int) {
	for c := s.PopBlock(); c != nil; c = s.PopBlock() {
		block.SetState(c, block.Free)
		owner.Recycle(c)
		blocks++
	}
	return blocks
}

func take(f *Front, k int) *owner.Cell {
	c := f.Take(k, 100)
	if c != nil {
		block.SetState(c, block.InUse)
	}
	return c
}

// empty takes everything out of front and depot.
func empty(f *Front, d *Depot) (blocks int) {
	out := f.Drain()
	blocks = free(&out)
	for k := range block.NumClasses {
		for m := d.Pop(k); m.N != 0; m = d.Pop(k) {
			f.Budget.Give(m.Bytes(k))
			var s block.Stack
			s.Push(m)
			blocks += free(&s)
		}
	}
	for m := d.PopCold(); m.N != 0; m = d.PopCold() {
		var s block.Stack
		s.Push(m)
		blocks += free(&s)
	}
	return blocks
}

func TestDefaultBudgetIsProportional(t *testing.T) {
	var b Budget
	b.init(DefaultCache)
	require.EqualValues(t, leastCache, b.Left())
	b.Resize(1600 << 20)
	require.EqualValues(t, 1500<<20, b.Left())
	require.EqualValues(t, 1000<<20, b.Take(900<<20, 100<<20))
	require.EqualValues(t, 1000<<20, b.Taken())
	b.Resize(0)
	require.Negative(t, b.Left())
	require.Zero(t, b.Take(1, 0))
	b.Give(1000 << 20)
	require.EqualValues(t, leastCache, b.Left())
	b.init(5)
	b.Resize(1600 << 20)
	require.EqualValues(t, 5, b.Left(), "WithCache sets the bound")
}

// A bin keeps two magazines. A third one goes to the depot, with its bytes of the budget.
func TestFullMagazinesGoToTheDepot(t *testing.T) {
	f, d := newFront(t, 1<<30)
	n := int(block.MagazineSize[largest])
	require.Zero(t, put(t, f, d, largest, inUse(t, largest, 3*n-1)))
	require.Equal(t, int64(n)*block.ClassBytes[largest], d.Bytes())
	require.Equal(t, int64(2*n-1)*block.ClassBytes[largest], f.Cached())
	require.GreaterOrEqual(t, f.Budget.Taken(), f.Cached()+d.Bytes())
	var cells []*owner.Cell
	for c := take(f, largest); c != nil; c = take(f, largest) {
		cells = append(cells, c)
	}
	require.Len(t, cells, 2*n-1, "both magazines")
	require.Zero(t, f.Stock(d.Pop(largest), largest))
	require.NotNil(t, take(f, largest))
	put(t, f, d, largest, cells)
	empty(f, d)
	require.Zero(t, f.Budget.Taken())
}

// A shard publishes its counts in steps. The sum of what is published and what is not is exact.
func TestPublishedChanges(t *testing.T) {
	f, d := newFront(t, 1<<30)
	put(t, f, d, largest, inUse(t, largest, 4))
	bytes, blocks := f.Unpublished()
	published := Change{Bytes: -f.Cached() - bytes, Blocks: -4 - blocks}
	for take(f, largest) != nil {
		c := f.TakeChange()
		published.Bytes, published.Blocks = published.Bytes+c.Bytes, published.Blocks+c.Blocks
		bytes, blocks := f.Unpublished()
		require.LessOrEqual(t, bytes, int64(publishStep))
		require.Equal(t, -f.Cached(), published.Bytes+bytes)
		require.Equal(t, published.Blocks+blocks, -f.Cached()/block.ClassBytes[largest])
	}
}

// Blocks that are idle since a tick become cold, in the shards after some calls.
func TestAge(t *testing.T) {
	f, d := newFront(t, 1<<30)
	n := int(block.MagazineSize[largest])
	d.Tick = 8
	put(t, f, d, largest, inUse(t, largest, 5*n))
	d.Age(7)
	require.False(t, d.HasCold())
	require.NotNil(t, d.PopBlock(largest))
	d.Age(8)
	cold := 0
	for m := d.PopCold(); m.N != 0; m = d.PopCold() {
		cold += int(m.N)
	}
	require.Equal(t, 4*n-1, cold, "one block was needed")
	look := Look{Span: 2, Least: AgesPerDecay}
	for range AgesPerDecay {
		look.Tick += look.Span
		s := f.Age(look)
		require.True(t, s.Empty())
	}
	first := true
	for range AgesPerDecay {
		look.Tick += look.Span
		s := f.Age(look)
		if m := s.Pop(); first {
			require.EqualValues(t, 2, m.Since, "the tick of the first look after the use")
			s.Push(m)
			first = false
		}
		free(&s)
	}
	require.Zero(t, f.Cached())
}

// A free evicts a magazine of the depot: a cold one first, then the classes in turn.
func TestDepotEvicts(t *testing.T) {
	f, d := newFront(t, 1<<30)
	for k := range 3 {
		for _, c := range inUse(t, k, 1) {
			require.True(t, d.Put(c, k))
		}
	}
	var seen []int
	for m := d.Evict(); m.N != 0; m = d.Evict() {
		seen = append(seen, block.Class(m.Head.Cell()))
	}
	require.Equal(t, []int{0, 1, 2}, seen)
	require.Zero(t, d.Bytes())
	require.Zero(t, f.Budget.Taken())
	d.Off = true
	require.False(t, d.Put(inUse(t, 0, 1)[0], 0), "a pressed pool")
}
