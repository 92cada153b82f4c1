// Package dropped lets packages below memmgr that count or bound memory have what C has
// dropped back at once, as pools have by themselves.
package dropped

// TakeBack is memmgr's: it takes what C has dropped back into the resources that are no pools,
// where the reaper would in a moment, and waits for what a reaper has in hand. Memory that
// waits for work stays out. It costs next to nothing where there is nothing. Not to be called
// from a resource's Free.
var TakeBack func()
