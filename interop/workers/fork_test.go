//go:build cgo && linux

package workers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/internal/forktest"
	"github.com/usmbridge/usmbridge/interop/workers"
)

func TestForks(t *testing.T) {
	p := open(t, workers.Config{Modules: []workers.Module{{Name: forktest.Module, Source: forktest.Source}}})
	forktest.Test(t, p)
	require.Zero(t, p.Workers()[0].Restarts)
}
