//go:build linux && cgo && !asan

package dlpack_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/dlpack/internal/cpeer"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestDeletedTwice: a consumer that deletes twice is wrong, but the owner keeps its other references and
// the block is not given to two tensors at once. Only the thread's cache of blocks makes this observable,
// so builds with a sanitizer, which have none, skip the test.
func TestDeletedTwice(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	owner := cpeer.NewOwner()
	defer owner.Free()
	view := dlpack.View{Data: cpeer.Alloc(16), Device: dlpack.CPU, DataType: dlpack.Float32, Shape: []int64{4}}
	defer cpeer.Free(view.Data)

	for _, versioned := range []bool{true, false} {
		before := owner.Drops()
		tensor := testenv.Must(exportView(view, 0, versioned, owner.DLPack()))(t)
		block, _ := tensor.Detach()
		dlpack.Delete(block, versioned)
		dlpack.Delete(block, versioned)
		require.Equal(t, before+1, owner.Drops(), "the owner lost one reference")

		first := testenv.Must(exportView(view, 0, versioned, owner.DLPack()))(t)
		second := testenv.Must(exportView(view, 0, versioned, owner.DLPack()))(t)
		one, _ := first.Managed()
		other, _ := second.Managed()
		require.NotEqual(t, one, other)
		first.Release()
		second.Release()
	}
}
