//go:build usmb_checks

package block

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/owner"
)

func TestChecksRejectIllegalTransitions(t *testing.T) {
	c, err := owner.New(nil)
	require.NoError(t, err)
	defer owner.Recycle(c)
	SetState(c, InHand)
	SetState(c, InUse)
	SetState(c, Cached)
	require.PanicsWithValue(t, `memmgr: block at 0x0: illegal transition from "cached" to "cached"`,
		func() { SetState(c, Cached) })
	SetState(c, Free)
	require.Panics(t, func() { SetState(c, InUse) })
	SetState(c, Cached)
	SetState(c, Free)
}

// TestPageShowsTheLegalTransitions compares the table of docs/internals.md with the one that is checked.
func TestPageShowsTheLegalTransitions(t *testing.T) {
	page, err := os.ReadFile("../../../docs/internals.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| ([a-z ]+) \| (.*) \|$`)
	next := regexp.MustCompile("([a-z]+|in [a-z]+) \\(`")
	shown := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		for _, to := range next.FindAllStringSubmatch(m[2], -1) {
			shown[m[1]] = append(shown[m[1]], to[1])
		}
	}
	for from, to := range legal {
		var names []string
		for _, state := range to {
			names = append(names, state.String())
		}
		require.ElementsMatch(t, names, shown[State(from).String()], "transitions from %q", State(from))
	}
}

func TestChecksRejectLocksOutOfOrder(t *testing.T) {
	var sweeping, pool, leaf Mutex
	SetRank(&sweeping, RankSweeping)
	SetRank(&pool, RankPool)
	SetRank(&leaf, RankLeaf)
	require.NotPanics(t, func() {
		sweeping.Lock()
		pool.Lock()
		leaf.Lock()
	})
	sweeping.Unlock()
	require.Panics(t, sweeping.Lock)
	require.Panics(t, func() { CheckRank(RankGrowing) })
	leaf.Unlock()
	pool.Unlock()
	require.NotPanics(t, sweeping.Lock)
	sweeping.Unlock()
}

func TestClassOfPendingBlock(t *testing.T) {
	c, err := owner.New(nil)
	require.NoError(t, err)
	defer owner.Recycle(c)
	SetState(c, InHand)
	SetClass(c, 3)
	require.Equal(t, 3, Class(c))
	SetState(c, Pending)
	require.Panics(t, func() { Class(c) })
	SetState(c, InHand)
	SetState(c, Free)
}
