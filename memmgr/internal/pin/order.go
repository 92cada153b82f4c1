//go:build !race

package pin

// Store is a plain store. It is for a word that another processor reads behind
// Barrier, of which the race detector knows nothing.
func Store(word *uint32, value uint32) { *word = value }

// Acquire tells the race detector that what follows comes after each Release of the
// word.
func Acquire(*uint32) {}

// Release tells it that what came before is done for whoever acquires the word, or
// loads it atomically.
func Release(*uint32) {}
