//go:build linux && cgo

package dlpack_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestTake: of a claimed tensor only the claimed handle is valid, and a second Take undoes the claim.
func TestTake(t *testing.T) {
	counter := cpeer.NewOwner()
	defer counter.Free()
	view := dlpack.View{Data: memory(t, 64), Device: dlpack.CPU, DataType: dlpack.Float32, Shape: []int64{16}}
	x := testenv.Must(exportView(view, 0, true, counter.DLPack()))(t)
	mine, ok := x.Take()
	require.True(t, ok)
	require.False(t, x.Valid())
	require.Equal(t, []int64{16}, mine.Shape())
	_, ok = x.Take()
	require.False(t, ok, "another handle has it")
	x.Release()
	require.True(t, mine.Valid(), "the former handle ends nothing")

	back, ok := mine.Take()
	require.True(t, ok)
	require.Equal(t, x, back)
	require.True(t, x.Valid())
	require.False(t, mine.Valid())

	mine, ok = x.Take()
	require.True(t, ok)
	mine.Release()
	require.False(t, x.Valid())
	_, ok = mine.Take()
	require.False(t, ok, "it ended")
	_, ok = dlpack.Tensor{}.Take()
	require.False(t, ok)

	// All handles of the former tensor are invalid for the next tensor of the slot.
	y := testenv.Must(exportView(view, 0, true, dlpack.Owner{}))(t)
	require.False(t, x.Valid() || mine.Valid() || back.Valid())
	y.Release()
	require.Equal(t, int64(1), counter.Drops())
}
