package syclobj

import (
	"fmt"
	"strings"
	"sync/atomic"
)

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

// String lists what is not zero; "nothing" when all is.
func (l Live) String() string {
	var parts []string
	for _, c := range []struct {
		n    int64
		name string
	}{
		{l.Platforms, "platforms"}, {l.Devices, "devices"}, {l.Contexts, "contexts"},
		{l.Queues, "queues"}, {l.Events, "events"}, {l.Places, "places"},
		{l.Allocations, "USM allocations"}, {l.HostAllocations, "host allocations"},
		{l.Programs, "programs"}, {l.Kernels, "kernels"}, {l.Waiters, "waiters"},
	} {
		if c.n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.name))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
