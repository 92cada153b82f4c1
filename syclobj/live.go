package syclobj

import "sync/atomic"

var liveWaiters atomic.Int64

// Live counts what the process holds through this package, including what C
// code of this module holds.
type Live struct {
	Platforms, Devices, Contexts, Queues, Events, Places int64
	Allocations                                          int64 // USM
	HostAllocations                                      int64 // of the host backend
	Programs, Kernels                                    int64
	Waiters                                              int64 // events that somebody waits for who can give up
}

// LiveObjects counts what is held now. It is all zero once every Runtime is
// closed and everything else closed, freed and released; tests compare it
// before and after.
func LiveObjects() Live {
	c := liveRefs()
	return Live{
		Platforms:       c[sortPlatform],
		Devices:         c[sortDevice],
		Contexts:        c[sortContext],
		Queues:          c[sortQueue],
		Events:          c[sortEvent],
		Places:          c[sortPlace],
		Allocations:     c[sortAllocation],
		Programs:        c[sortProgram],
		Kernels:         c[sortKernel],
		HostAllocations: liveHostAllocations.Load(),
		Waiters:         liveWaiters.Load(),
	}
}
