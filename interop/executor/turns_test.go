package executor_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/internal/fair/fairtest"
)

// TestTurns checks that functions take turns in the slots, and on the lane.
func TestTurns(t *testing.T) {
	for name, serial := range map[string][]string{"slots": nil, "lane": {fairtest.Module.Name}} {
		t.Run(name, func(t *testing.T) {
			e, _ := open(t, executor.Config{Modules: []executor.Module{fairtest.Module}, Serial: serial})
			fairtest.Run(t, e)
		})
	}
}
