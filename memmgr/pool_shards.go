package memmgr

import (
	"iter"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr/internal/pin"
)

// newShards makes one for each processor that can run Go code now.
func newShards() []shard {
	pin.Register()
	shards := make([]shard, max(runtime.GOMAXPROCS(0), runtime.NumCPU()))
	for i := range shards {
		shards[i].watch()
	}
	return shards
}

// addedShards are those of processors that came after the pool was made, when
// GOMAXPROCS grew. Those that are not used any more, because it fell, stay; their free
// blocks go back like those of others.
type addedShards struct {
	all   atomic.Pointer[[]*shard] // replaced under the pool's lock
	short atomic.Bool              // a processor found none for itself
}

func (a *addedShards) list() []*shard {
	if all := a.all.Load(); all != nil {
		return *all
	}
	return nil
}

// claimAdded is claim on a processor that was not there when the pool was made.
func (p *Pool) claimAdded(id int) *shard {
	added := p.added.list()
	if id-len(p.shards) >= len(added) {
		p.added.short.Store(true)
		return nil
	}
	return added[id-len(p.shards)].claimFenced()
}

// addShards makes shards for processors that found none. p.mu is held, and nobody has
// stopped the shards.
func (p *Pool) addShards() {
	if p.closed || !p.added.short.Load() {
		return
	}
	p.added.short.Store(false)
	all := append([]*shard(nil), p.added.list()...)
	for len(p.shards)+len(all) < runtime.GOMAXPROCS(0) {
		s := &shard{pressed: p.pressed}
		s.watch()
		all = append(all, s)
	}
	p.added.all.Store(&all)
}

// allShards goes through the shards of all processors.
func (p *Pool) allShards() iter.Seq[*shard] {
	return func(yield func(*shard) bool) {
		for i := range p.shards {
			if !yield(&p.shards[i]) {
				return
			}
		}
		for _, s := range p.added.list() {
			if !yield(s) {
				return
			}
		}
	}
}

// countShards returns how many there are.
func (p *Pool) countShards() int { return len(p.shards) + len(p.added.list()) }

// frontBytes is the Go memory of the shards.
func (p *Pool) frontBytes() uint64 {
	return uint64(p.countShards()) * uint64(unsafe.Sizeof(shard{}))
}
