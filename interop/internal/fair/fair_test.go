package fair

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTurns serves calls on simulated slots. A call of an idle function begins when the next call ends, however many calls of
// others wait; functions with waiting calls share the time, and the calls of one begin in their order.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots int
		slow  int // functions with many waiting calls of a second
	}{{"one slow function", 1, 1}, {"six slow functions", 1, 6}, {"two slots", 2, 6}, {"more slots than functions", 4, 2}} {
		t.Run(c.name, func(t *testing.T) {
			var q Queue[[]int]
			push := func(function string, call int) {
				f := q.Flow(function)
				f.Items = append(f.Items, call)
				q.Wait(f)
			}
			names := map[*Flow[[]int]]string{}
			begun := map[string]int{}
			begin := func() string {
				f := q.Next()
				require.Equal(t, begun[names[f]], f.Items[0], "in order")
				f.Items = f.Items[1:]
				q.Leave(f)
				q.Begin(f)
				begun[names[f]]++
				return names[f]
			}
			for i := range c.slow {
				name := fmt.Sprint("slow ", i)
				names[q.Flow(name)] = name
				for call := range 100 {
					push(name, call)
				}
			}
			names[q.Flow("fast")] = "fast"
			var running []string
			for len(running) < c.slots {
				running = append(running, begin())
			}
			for round := range 60 {
				q.End(q.Flow(running[0]), time.Second)
				running = running[1:]
				if round%3 == 0 {
					push("fast", begun["fast"])
					require.Equal(t, "fast", begin(), "the first to begin")
					q.End(q.Flow("fast"), time.Millisecond)
				}
				running = append(running, begin())
			}
			least, most := 1000, 0
			for name, n := range begun {
				if name != "fast" {
					least, most = min(least, n), max(most, n)
				}
			}
			require.Equal(t, 20, begun["fast"])
			require.LessOrEqual(t, most-least, 1, "slow functions take turns: %v", begun)
			for f := q.Next(); f != nil; f = q.Next() {
				q.Leave(f)
			}
		})
	}
}

// TestForgets checks that the number of functions that are remembered is bounded.
func TestForgets(t *testing.T) {
	var q Queue[int]
	kept := q.Flow("kept")
	q.Wait(kept)
	for i := range 10 * maxFlows {
		q.Flow(fmt.Sprint(i))
	}
	require.LessOrEqual(t, len(q.flows), maxFlows+1)
	require.Same(t, kept, q.Flow("kept"))
}
