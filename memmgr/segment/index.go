package segment

import (
	"cmp"
	"slices"
	"sync"
)

// live contains the allocated segments of this process.
var live index

// index is a set of segments that do not overlap, in the order of their addresses. A change moves the entries above it,
// 8 bytes for each, which costs little compared with the system calls that make a segment.
type index struct {
	mu  sync.RWMutex
	all []*record
}

// at returns the position of the segment that begins at an address, or of the next one above it. mu is held.
func (x *index) at(base uintptr) (i int, found bool) {
	return slices.BinarySearchFunc(x.all, base, func(r *record, base uintptr) int { return cmp.Compare(r.region.base, base) })
}

// find returns the segment that contains an address, or nil.
func (x *index) find(address uintptr) *record {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i, found := x.at(address)
	if !found {
		i-- // the segment that begins below the address
	}
	if i < 0 || address-x.all[i].region.base >= x.all[i].region.size {
		return nil
	}
	return x.all[i]
}

func (x *index) add(r *record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i, _ := x.at(r.region.base)
	x.all = slices.Insert(x.all, i, r)
}

// remove removes and returns the segment of a resource that begins at an address, or returns nil.
func (x *index) remove(base uintptr, of *Resource) *record {
	x.mu.Lock()
	defer x.mu.Unlock()
	i, found := x.at(base)
	if !found || x.all[i].of != of {
		return nil
	}
	r := x.all[i]
	x.all = slices.Delete(x.all, i, i+1)
	return r
}
