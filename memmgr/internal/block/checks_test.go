//go:build usmb_checks

package block

import (
	"os"
	"regexp"
	"strings"
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

// TestDiagramShowsTheLegalTransitions compares the diagram of docs/internals.md with the table that is checked.
func TestDiagramShowsTheLegalTransitions(t *testing.T) {
	page, err := os.ReadFile("../../../docs/internals.md")
	require.NoError(t, err)
	arrow := regexp.MustCompile(`(?m)^([A-Z ]{8}) -- [A-Za-z, ]+ ?-*> ([A-Z ]+[A-Z])`)
	shown := map[string][]string{}
	from := ""
	for _, m := range arrow.FindAllStringSubmatch(string(page), -1) {
		if state := strings.TrimSpace(m[1]); state != "" {
			from = strings.ToLower(state)
		}
		shown[from] = append(shown[from], strings.ToLower(m[2]))
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
