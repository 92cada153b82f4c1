package memmgr

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/memmgr/internal/shared"
	"github.com/usmbridge/usmbridge/syclobj"
)

// defaults are the pools that the process shares: one for each place, and those that
// other packages add through internal/shared.
var defaults = struct {
	mu sync.Mutex
	m  map[shared.Key]defaultPool
}{m: map[shared.Key]defaultPool{}}

func init() {
	shared.Pool = func(key shared.Key, name string, upstream func() (io.Closer, error)) (any, error) {
		return defaultFor(key, func() (Resource, string, error) {
			made, err := upstream()
			if err != nil {
				return nil, "", err
			}
			from, ok := made.(Resource)
			if !ok {
				err := errors.New("memmgr: the upstream of a shared pool is not a Resource")
				return nil, "", multierr.Append(err, made.Close())
			}
			return from, name, nil
		})
	}
}

type defaultPool struct {
	pool     *Pool
	upstream io.Closer // nil where it needs no closing
}

// Default returns the pool that everything in the process shares for the memory of one
// context, device and kind: for users without a resource of their own. On a queue of the
// host backend (or nil) it is the pool of host memory. The caller does not close it: see
// [CloseDefaults].
func Default(q *syclobj.Queue, kind syclobj.USMKind) (*Pool, error) {
	place := syclobj.HostPlace()
	if q != nil && !q.IsHost() {
		p, err := q.Place(kind)
		if err != nil {
			return nil, err
		}
		defer p.Release()
		place = p
	}
	return defaultFor(shared.Key{Place: place}, func() (Resource, string, error) {
		if place.IsHost() {
			return Host(), "host", nil
		}
		upstream := USM(q, kind).(*usmResource)
		if upstream.err != nil { // the queue was closed meanwhile, for example
			return nil, "", upstream.err
		}
		return upstream, kind.String() + " " + upstream.place.FilterString(), nil
	})
}

// defaultFor returns the pool of a key. If there is none, it makes one over the resource, and
// with the name, that upstream returns. Making the upstream may take a while, so no lock is
// held meanwhile.
func defaultFor(key shared.Key, upstream func() (Resource, string, error)) (*Pool, error) {
	defaults.mu.Lock()
	d, ok := defaults.m[key]
	defaults.mu.Unlock()
	if ok {
		return d.pool, nil
	}
	from, name, err := upstream()
	if err != nil {
		return nil, err
	}
	made, _ := from.(io.Closer)
	defaults.mu.Lock()
	d, ok = defaults.m[key]
	if !ok {
		d = defaultPool{NewPool(&Limit{present(from), defaultBudget}, WithName(name)), made}
		defaults.m[key] = d
	}
	defaults.mu.Unlock()
	if ok && made != nil { // another goroutine was faster
		return d.pool, made.Close()
	}
	return d.pool, nil
}

// CloseDefaults closes the shared pools, so that contexts can be closed. Memory in use
// stays valid; later calls of [Default] make new pools.
func CloseDefaults() error {
	defaults.mu.Lock()
	all := defaults.m
	defaults.m = map[shared.Key]defaultPool{}
	defaults.mu.Unlock()
	var err error
	for _, d := range all {
		err = multierr.Append(err, d.pool.Close())
		if d.upstream != nil {
			err = multierr.Append(err, d.upstream.Close())
		}
	}
	return err
}

// defaultBudget is the common budget of the default pools.
var defaultBudget = newSharedBudget(unlimited)

// SetDefaultLimit bounds the bytes that the default pools may hold from the system at a
// time, all of them together, idle memory included; 0 means no bound, as at the start. It
// may be called at any time. If the pools hold more than the new limit, they give idle
// memory back, memory in use stays, and requests that need more from the system are
// refused with an [*OutOfMemoryError] until enough was freed.
func SetDefaultLimit(bytes uint64) {
	if bytes == 0 {
		bytes = unlimited
	}
	defaultBudget.limit.Store(bytes)
	defaults.mu.Lock()
	all := slices.Collect(maps.Values(defaults.m))
	defaults.mu.Unlock()
	for _, d := range all {
		if defaultBudget.used.Load() > bytes {
			d.pool.Trim(0)
		}
	}
}
