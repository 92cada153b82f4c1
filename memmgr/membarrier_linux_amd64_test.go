package memmgr_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// membarrier is a command of Linux's membarrier.h that only a registered process may use.
func membarrierAllowed() error {
	const number, privateExpedited = 324, 1 << 3
	if _, _, errno := syscall.RawSyscall(number, privateExpedited, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// A program that imports this package and makes no pool does not register with the kernel, which
// would take time.
func TestImportRegistersNothingWithTheKernel(t *testing.T) {
	if _, child := memmgr.Child(t); !child {
		return
	}
	before := membarrierAllowed()
	p := memmgr.NewPool(memmgr.Host())
	require.NoError(t, p.Close())
	require.Error(t, before, "the process was registered before it made a pool")
	require.Equal(t, pin.Expedited(), membarrierAllowed() == nil)
	if pin.Fast && before == syscall.EPERM {
		require.True(t, pin.Expedited(), "a pool did not register although the kernel can")
	}
}
