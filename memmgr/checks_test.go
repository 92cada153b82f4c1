//go:build usmb_checks

package memmgr

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
	setState(c, stateInHand)
	setState(c, stateInUse)
	setState(c, stateCached)
	require.PanicsWithValue(t, `memmgr: block at 0x0: illegal transition from "cached" to "cached"`,
		func() { setState(c, stateCached) })
	setState(c, stateFree)
	require.Panics(t, func() { setState(c, stateInUse) })
	setState(c, stateCached)
	setState(c, stateFree)
}

// TestDiagramShowsTheLegalTransitions compares the diagram of docs/internals.md with the table that is checked.
func TestDiagramShowsTheLegalTransitions(t *testing.T) {
	page, err := os.ReadFile("../docs/internals.md")
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
		require.ElementsMatch(t, names, shown[blockState(from).String()], "transitions from %q", blockState(from))
	}
}

// A block that is freed twice is found at the second free, whichever way both went.
func TestChecksFindASecondFree(t *testing.T) {
	p := NewPool(Host())
	defer func() { require.NoError(t, p.Close()) }()
	b, err := New(p, Request{Size: 4096})
	require.NoError(t, err)
	c := b.ref.Cell()
	require.Panics(t, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.heap.cache(c, int(c.Private))
		p.heap.cache(c, int(c.Private))
	})
}

func TestChecksRejectLocksOutOfOrder(t *testing.T) {
	p, q := NewPool(Host()), NewPool(Host())
	defer func() { require.NoError(t, p.Close()) }()
	defer func() { require.NoError(t, q.Close()) }()
	require.NotPanics(t, func() {
		p.pending.sweeping.Lock()
		p.mu.Lock()
		queues.mu.Lock()
		queues.mu.Unlock() //nolint:staticcheck // only the order counts
		p.mu.Unlock()
		p.pending.sweeping.Unlock()
	})
	require.True(t, p.mu.TryLock())
	require.Panics(t, q.mu.Lock, "no lock spans two pools")
	require.Panics(t, p.pending.sweeping.Lock)
	require.Panics(t, func() { _ = p.beginGrowth(nil) }) //nolint:staticcheck // as for a request without a context
	p.mu.Unlock()
	q.mu.Lock()
	q.mu.Unlock() //nolint:staticcheck // only the order counts
}
