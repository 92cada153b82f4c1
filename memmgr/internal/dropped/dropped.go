// Package dropped lets packages in folders of memmgr reclaim the memory that C has dropped, without
// waiting for the reaper.
package dropped

// TakeBack is set by memmgr. It frees the memory that C has dropped and that belongs to resources
// other than pools, and waits for a reaper that is doing so. Memory with pending work is not freed.
// The call is cheap if there is no such memory. It must not be made from a resource's Free.
var TakeBack func()
