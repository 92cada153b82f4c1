package account

import (
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/front"
)

// Blocks that the account counted and blocks that a shard served add up.
func TestCollect(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	a, f := &Account{}, &front.Front{}
	f.Init(front.DefaultCache)
	k := block.ClassFor(8)
	size := uint64(block.ClassBytes[k])
	c, err := owner.New(nil)
	require.NoError(t, err)
	defer owner.Recycle(c)
	c.Size, c.Requested = size, 2000
	block.SetClass(c, k)
	block.SetState(c, block.InHand)
	a.Count(c, k, 2000)
	require.EqualValues(t, 1, a.Counted(k))
	require.EqualValues(t, size, a.Bytes.Now())
	require.Zero(t, a.Blocks.Now(), "published later")

	block.SetState(c, block.InUse)
	s := f.Enter() // the user frees it into the shard, and gets it again
	require.NotNil(t, s)
	s.Put(k, c)
	s.CountPut(k, c)
	require.Equal(t, c, s.Take(k))
	s.CountTake(k, 1900)
	s.Leave()
	block.SetState(c, block.InUse)
	f.Stop()
	totals := a.Collect(f)
	f.Resume()
	require.Equal(t, Totals{Usage: front.Usage{Allocs: 2, Frees: 1, Taken: 2 * size, Given: size, Asked: 3900, Unasked: 2000}}, totals)
	require.EqualValues(t, 1, a.Blocks.Now())
	require.EqualValues(t, 1900, a.Asked.Now())
	require.EqualValues(t, 2000, a.Asked.Peak())

	c.Requested = 1900
	a.Uncount(c, k)
	a.PublishRest()
	require.Zero(t, a.Bytes.Now())
	require.Zero(t, a.Asked.Now())
	blocks, bytes := a.RaiseActive(3, 10*size)
	require.EqualValues(t, 3, blocks)
	require.EqualValues(t, 10*size, bytes)
	a.ResetPeaks()
	blocks, bytes = a.RaiseActive(0, 0)
	require.Zero(t, blocks)
	require.Zero(t, bytes)
	block.SetState(c, block.Free)
}

// Blocks without a class count their own bytes.
func TestCollectWithoutClass(t *testing.T) {
	a, f := &Account{}, &front.Front{}
	f.Init(0)
	c := &owner.Cell{Size: 5 << 20, Requested: 5000000}
	a.Count(c, block.NoClass, 5000000)
	a.Count(c, block.NoClass, 5000000)
	a.Uncount(c, block.NoClass)
	f.Stop()
	defer f.Resume()
	require.Equal(t, Totals{Usage: front.Usage{Allocs: 2, Frees: 1, Taken: 10 << 20, Given: 5 << 20, Asked: 10000000, Unasked: 5000000}}, a.Collect(f))
	require.EqualValues(t, 2, a.Blocks.Peak())
	require.EqualValues(t, 10<<20, a.Bytes.Peak())
}

func TestSampledRequestsStandForTheOthers(t *testing.T) {
	a := &Account{}
	for range 10 * Sample {
		if a.Sampled() {
			a.Slow.Add(time.Millisecond, Sample)
		}
	}
	require.EqualValues(t, 60, a.Quick(10*Sample+60))
	require.Zero(t, a.Quick(5*Sample), "an estimate is not negative")
}

// The first tags have numbers of their own, further ones one together. Goroutines that add the same tag agree.
func TestTagsAreBounded(t *testing.T) {
	require.Zero(t, TagNumber(""))
	require.Empty(t, TagName(0))
	require.Empty(t, TagName(1<<31), "the number of a cell that changes meanwhile")
	var wg sync.WaitGroup
	var numbers [4][]uint32
	for g := range numbers {
		wg.Go(func() {
			for i := range 2 * MostTags {
				numbers[g] = append(numbers[g], TagNumber("tag "+strconv.Itoa(i)))
			}
		})
	}
	wg.Wait()
	names := map[string]int{}
	for i, n := range numbers[0] {
		names[TagName(n)]++
		for g := range numbers {
			require.Equal(t, n, numbers[g][i])
		}
	}
	require.Len(t, names, MostTags+1)
	require.Equal(t, MostTags, names["other"])
}

func TestHoldings(t *testing.T) {
	var u TagUse
	a, b := TagNumber("tag 1"), TagNumber("tag 2")
	u.Add(a, 100, 2)
	u.Add(b, 50, 1)
	u.Add(b, -50, -1)
	require.Equal(t, []Holding{{"tag 1", 100, 2}, {"", 20, 1}}, u.Holdings(120, 3))
	require.Equal(t, []Holding{{"tag 1", 100, 2}}, u.Holdings(100, 2))
}
