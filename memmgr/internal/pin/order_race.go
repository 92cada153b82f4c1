//go:build race

package pin

import (
	"runtime"
	"unsafe"
)

// Store is a plain store. It is for a word that another processor reads behind
// Barrier, of which the race detector knows nothing.
//
//go:norace
func Store(word *uint32, value uint32) { *word = value }

// Acquire tells the race detector that what follows comes after each Release of the
// word.
func Acquire(word *uint32) { runtime.RaceAcquire(unsafe.Pointer(word)) }

// Release tells it that what came before is done for whoever acquires the word, or
// loads it atomically.
func Release(word *uint32) { runtime.RaceReleaseMerge(unsafe.Pointer(word)) }
