// Package fairtest checks that functions take turns, for tests of all runners.
package fairtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/executor"
)

// Module is the Python module that the runner of Run has.
var Module = executor.Module{Name: "fairtest", Source: `
import threading, time
began, gate = [], threading.Event()
def _slow(name):
    began.append(name)
    while not gate.is_set(): time.sleep(0.001)
    time.sleep(0.05)
def slow0(): _slow("slow0")
def slow1(): _slow("slow1")
def slow2(): _slow("slow2")
def fast(): began.append("fast")
def hold(text):
    gate.clear()
    began.clear()
    return text
def release(text):
    gate.set()
    return text
def order(text): return " ".join(began)
`}

// Run checks a runner with one slot or worker. Calls of three slow functions wait, all of one before those of the next, and
// then one of a function that was idle: this one begins after the running call, and the slow functions take turns.
func Run(t *testing.T, r executor.Runner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	ask := func(function string) string {
		text, err := r.CallEach(ctx, "", "fairtest:"+function, "")
		require.NoError(t, err)
		return text
	}
	ask("release")
	for _, function := range []string{"slow0", "slow1", "slow2", "fast"} { // their times are known then
		_, err := r.Call(ctx, "fairtest:"+function)
		require.NoError(t, err)
	}
	const calls = 4 // of each slow function
	for round := range 3 {
		ask("hold")
		over := make(chan error, 3*calls+1)
		call := func(function string, isWaiting func() bool) {
			t.Helper()
			go func() { _, err := r.Call(ctx, "fairtest:"+function); over <- err }()
			require.Eventually(t, isWaiting, time.Minute, time.Millisecond)
		}
		call("slow0", func() bool { return ask("order") == "slow0" })
		for i := 1; i < 3*calls; i++ {
			call(fmt.Sprint("slow", i/calls), func() bool { return r.Stats().Waiting == i })
		}
		call("fast", func() bool { return r.Stats().Waiting == 3*calls })
		ask("release")
		for range 3*calls + 1 {
			require.NoError(t, <-over)
		}
		began := strings.Fields(ask("order"))
		require.Len(t, began, 3*calls+1)
		require.LessOrEqual(t, slices.Index(began, "fast"), 2, "round %d: %v", round, began) // 1, unless its last call was slower than those of others
		slices.Reverse(began)
		lastOfFirst := len(began) - 1 - slices.Index(began, "slow0")
		slices.Reverse(began)
		require.Less(t, slices.Index(began, "slow2"), lastOfFirst, "round %d: they take turns: %v", round, began)
	}
}
