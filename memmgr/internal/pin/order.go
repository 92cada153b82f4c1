//go:build !race

package pin

// Store is a plain store to a word that another processor reads after Barrier. The race detector
// does not know Barrier, so it must not check this store.
func Store(word *uint32, value uint32) { *word = value }

// Acquire declares to the race detector that the following code runs after each Release of the word.
func Acquire(*uint32) {}

// Release declares that the preceding code runs before any later Acquire or atomic load of the word.
func Release(*uint32) {}
