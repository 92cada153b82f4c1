//go:build !usmb_checks

package memmgr

import (
	"sync"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// setState notes that a block changes its state. It costs nothing without the tag usmb_checks.
func setState(*owner.Cell, blockState) {}

func checkNotPending(*owner.Cell) {}

// rankedMutex is a mutex whose place in the lock order is checked with the tag usmb_checks.
type rankedMutex = sync.Mutex

func setRank(*rankedMutex, lockRank) {}

func checkRank(lockRank) {}
