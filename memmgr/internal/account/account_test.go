package account

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
