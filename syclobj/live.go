package syclobj

import "sync/atomic"

var liveWaiters atomic.Int64

// Live counts the objects that the process holds through this package, including those of C code of this
// module. It is a plain value.
type Live struct {
	Platforms, Devices, Contexts, Queues, Events, Places int64
	Allocations                                          int64 // USM
	HostAllocations                                      int64 // memory of the host backend
	Programs, Kernels                                    int64
	Waiters                                              int64 // waits for events with a cancellable context
}

// LiveObjects counts the objects that are held now. All counts are zero once every Runtime is closed and
// all other objects are closed, freed and released; tests compare it before and after.
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
