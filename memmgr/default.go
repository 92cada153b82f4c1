package memmgr

import (
	"errors"
	"io"
	"sync"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/memmgr/internal/shared"
	"github.com/usmbridge/usmbridge/syclobj"
)

// defaults are the resources that the process shares: one for each place, and those that
// packages below this one add (internal/shared).
var defaults = struct {
	mu sync.Mutex
	m  map[shared.Key]defaultResource
}{m: map[shared.Key]defaultResource{}}

func init() { shared.Resource = sharedResource }

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
	key := shared.Key{Place: place}
	if d, ok := defaults.m[key]; ok {
		return d.resource, nil
	}
	d, err := newDefault(q, kind)
	if err != nil {
		return nil, err
	}
	defaults.m[key] = d
	return d.resource, nil
}

// sharedResource is [shared.Resource]. Making the upstream may take a while, and nobody
// waits for it who wants another.
func sharedResource(key shared.Key, name string, upstream func() (io.Closer, error)) (any, error) {
	if r := findDefault(key); r != nil {
		return r, nil
	}
	made, err := upstream()
	if err != nil {
		return nil, err
	}
	from, ok := made.(Resource)
	if !ok {
		return nil, multierr.Append(errors.New("memmgr: what a shared pool shall stand on is no Resource"), made.Close())
	}
	defaults.mu.Lock()
	if d, ok := defaults.m[key]; ok {
		defaults.mu.Unlock()
		return d.resource, made.Close()
	}
	defer defaults.mu.Unlock()
	p := NewPool(&Limit{over(from), defaultBudget}, WithName(name))
	defaults.m[key] = defaultResource{p, func() error { return multierr.Append(p.Close(), made.Close()) }}
	return p, nil
}

func findDefault(key shared.Key) Resource {
	defaults.mu.Lock()
	defer defaults.mu.Unlock()
	return defaults.m[key].resource
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
	defaults.m = map[shared.Key]defaultResource{}
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
func newDefault(q *syclobj.Queue, kind syclobj.USMKind) (defaultResource, error) {
	if q == nil || q.IsHost() {
		p := NewPool(&Limit{over(Host()), defaultBudget}, WithName("host"))
		return defaultResource{p, p.Close}, nil
	}
	upstream := USM(q, kind).(*usmResource)
	if upstream.err != nil { // of a queue that was closed meanwhile, say
		return defaultResource{}, upstream.err
	}
	p := NewPool(&Limit{over(upstream), defaultBudget}, WithName(kind.String()+" "+upstream.place.FilterString()))
	return defaultResource{p, func() error { return multierr.Append(p.Close(), upstream.Close()) }}, nil
}
