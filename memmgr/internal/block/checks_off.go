//go:build !usmb_checks

package block

import (
	"sync"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// SetState notes that a block changes its state. It costs nothing without the tag usmb_checks.
func SetState(*owner.Cell, State) {}

func checkNotPending(*owner.Cell) {}

// Mutex is a mutex whose place in the lock order is checked with the tag usmb_checks.
type Mutex = sync.Mutex

// SetRank gives a mutex its rank. Without one it is not checked.
func SetRank(*Mutex, Rank) {}

// CheckRank is the check of [Mutex] for a lock that is not a mutex.
func CheckRank(Rank) {}
