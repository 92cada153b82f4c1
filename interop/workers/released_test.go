//go:build cgo && linux

package workers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// TestReleasedArguments checks that a released argument is an error of the call, and that the worker remains
// available.
func TestReleasedArguments(t *testing.T) {
	p := open(t, workers.Config{})
	x := memory(t, segment.PeersWrite).floats(1, 2)
	x.Release()
	ctx := limited(t)
	require.Panics(t, func() { _, _ = p.Call(ctx, "models:double", x) }, "as any use of it")
	require.Zero(t, p.Stats().Running)
	v, err := p.Call(ctx, "models:add", 2, 3)
	require.NoError(t, err)
	require.Equal(t, int64(5), v)
}
