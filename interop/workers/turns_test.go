//go:build cgo && linux

package workers_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/interop/internal/fair/fairtest"
	"github.com/usmbridge/usmbridge/interop/workers"
)

// TestTurns checks that functions take turns in workers.
func TestTurns(t *testing.T) {
	fairtest.Run(t, open(t, workers.Config{Modules: []workers.Module{fairtest.Module}}))
}
