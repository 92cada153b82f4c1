package memmgr

import (
	"sync"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/syclobj"
)

// defaults are the resources that the process shares, one for each place.
var defaults = struct {
	mu sync.Mutex
	m  map[*syclobj.Place]defaultResource
}{m: map[*syclobj.Place]defaultResource{}}

type defaultResource struct {
	resource Resource
	close    func() error
}

// Default returns the pool that everything in the process shares for the memory
// of one context, device and kind: for users who bring no resource of
// their own. On a queue of the host backend (or nil) it is that of host memory.
func Default(q *syclobj.Queue, kind syclobj.USMKind) (Resource, error) {
	place := syclobj.HostPlace()
	if q != nil && !q.IsHost() {
		p, err := q.Place(kind)
		if err != nil {
			return nil, err
		}
		defer p.Release()
		place = p
	}
	defaults.mu.Lock()
	defer defaults.mu.Unlock()
	if d, ok := defaults.m[place]; ok {
		return d.resource, nil
	}
	d := newDefault(q, kind)
	defaults.m[place] = d
	return d.resource, nil
}

// Defaults lists the shared resources made so far.
func Defaults() []Resource {
	defaults.mu.Lock()
	defer defaults.mu.Unlock()
	all := make([]Resource, 0, len(defaults.m))
	for _, d := range defaults.m {
		all = append(all, d.resource)
	}
	return all
}

// CloseDefaults closes the shared resources, so that contexts can go. Memory in
// use stays valid; later calls of [Default] make new ones.
func CloseDefaults() error {
	defaults.mu.Lock()
	all := defaults.m
	defaults.m = map[*syclobj.Place]defaultResource{}
	defaults.mu.Unlock()
	var err error
	for _, d := range all {
		err = multierr.Append(err, d.close())
	}
	return err
}

// defaultBudget is what the pools of Default count in together.
var defaultBudget = newLimitBudget(unlimited)

// SetDefaultLimit bounds the bytes that the pools of [Default] may have from the system at
// a time, all of them together, those that they keep idle included; 0 is no bound, as at
// the beginning. It can come at any time: where more is held already, what is idle is
// given back, nothing is taken from its users, and requests that need more from the system
// are refused with an [*OutOfMemoryError] until enough was freed.
func SetDefaultLimit(bytes uint64) {
	if bytes == 0 {
		bytes = unlimited
	}
	defaultBudget.limit.Store(bytes)
	for _, r := range Defaults() {
		if p, ok := r.(*Pool); ok && defaultBudget.used.Load() > bytes {
			p.Trim(0)
		}
	}
}

// newDefault makes a pool, named after its memory.
func newDefault(q *syclobj.Queue, kind syclobj.USMKind) defaultResource {
	if q == nil || q.IsHost() {
		p := NewPool(&Limit{over(Host()), defaultBudget}, WithName("host"))
		return defaultResource{p, p.Close}
	}
	upstream := USM(q, kind).(*usmResource)
	p := NewPool(&Limit{over(upstream), defaultBudget}, WithName(kind.String()+" "+upstream.place.FilterString()))
	return defaultResource{p, func() error { return multierr.Append(p.Close(), upstream.Close()) }}
}
