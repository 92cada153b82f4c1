package arena

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/dropped"
	"github.com/usmbridge/usmbridge/syclobj"
)

// ErrLimit is wrapped by the memmgr.OutOfMemoryError of a request above the arena's limit.
var ErrLimit = errors.New("the arena's limit is reached")

// Options configure an arena. The zero value has no name and no limit.
type Options struct {
	// Name is the tenant in errors, such as the request or its client.
	Name string
	// Limit bounds the requested bytes in use at a time, over all resources; 0 means no
	// limit. A request above it fails and never waits, because it could only wait for memory
	// of the same request.
	Limit uint64
	// Choose returns the resource for a queue and a kind of USM (syclobj.USMUnknown on the
	// queue of the host backend), as Python's arrays need it. If it is nil, the caller of
	// Resource chooses.
	Choose Chooser
}

// Chooser returns a resource for a queue and a kind of USM. It may be called from any
// goroutine.
type Chooser func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error)

// Owned is a value that an arena can own, such as a *usmarray.Array or a memmgr.Buffer. It is
// comparable. Valid reports whether it was not released yet.
type Owned interface {
	Release()
	Valid() bool
}

// Arena is the memory of one request. [New] makes it, [Arena.End] ends it.
type Arena struct {
	options Options

	mu       sync.Mutex
	ended    bool
	counted  bool   // out is counted in outstanding: set by End after its releases
	charged  uint64 // bytes in use or being allocated
	out      use
	kept     use // the part of out for which Keep was called
	memories []*memory
	owned    map[Owned]struct{}
	prune    int // number of owned values at which released ones are removed
}

// use is a number of blocks and their bytes.
type use struct {
	blocks int
	bytes  uint64
}

func (u *use) add(blocks int, bytes uint64) {
	u.blocks += blocks
	u.bytes += bytes
}

// leastPrune is the number of owned values at which Own first removes released ones.
const leastPrune = 64

// New makes an arena. The caller ends it with [Arena.End].
func New(o Options) *Arena { return &Arena{options: o, prune: leastPrune} }

// Name returns Options.Name.
func (a *Arena) Name() string { return a.options.Name }

// Over returns the arena's memory over a resource, the same for the same resource. Arrays of package
// usmarray in this memory belong to the arena.
func (a *Arena) Over(from memmgr.Resource) memmgr.Resource {
	v := reflect.ValueOf(from)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		from = memmgr.NewLimit(from, math.MaxUint64) // its Allocate returns the error
	}
	same := v.IsValid() && v.Comparable()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.memories {
		if same && m.from == from {
			return m
		}
	}
	m := &memory{arena: a, from: from, blocks: map[uintptr]block{}}
	if !a.ended { // after the end it allocates nothing
		a.memories = append(a.memories, m)
	}
	return m
}

// Resource returns the arena's memory for a queue and a kind of USM, over the resource that
// Options.Choose returns. If that is nil, otherwise chooses, and if that is nil too,
// memmgr.Default.
func (a *Arena) Resource(q *syclobj.Queue, usm syclobj.USMKind, otherwise Chooser) (memmgr.Resource, error) {
	choose := a.options.Choose
	if choose == nil {
		choose = otherwise
	}
	if choose == nil {
		choose = defaultPool
	}
	from, err := choose(q, usm)
	if err != nil {
		return nil, err
	}
	return a.Over(from), nil
}

// defaultPool is memmgr.Default as a Chooser.
func defaultPool(q *syclobj.Queue, usm syclobj.USMKind) (memmgr.Resource, error) {
	p, err := memmgr.Default(q, usm)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Own gives x to the arena: End releases it. x must be comparable. After End it fails with
// memmgr.ErrClosed, and x stays the caller's.
func (a *Arena) Own(x Owned) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return a.closedError("Own")
	}
	if a.owned == nil {
		a.owned = map[Owned]struct{}{}
	}
	if len(a.owned) >= a.prune {
		for o := range a.owned {
			if !o.Valid() {
				delete(a.owned, o)
			}
		}
		a.prune = max(leastPrune, 2*len(a.owned))
	}
	a.owned[x] = struct{}{}
	return nil
}

// Keep takes x out of the arena: the caller owns it and releases it. Memory of this arena in x
// may outlive the arena without being reported as left. Keep reports whether the arena owned
// x. If the caller owned it before, such as a result of Python, it is only not reported.
func (a *Arena) Keep(x Owned) (owned bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, owned = a.owned[x]; owned {
		delete(a.owned, x)
	}
	if !x.Valid() {
		return owned
	}
	var b memmgr.Buffer
	switch x := x.(type) {
	case memmgr.Buffer:
		b = x
	case interface{ Buffer() memmgr.Buffer }:
		b = x.Buffer()
	default:
		return owned
	}
	if m, ok := b.Resource().(*memory); ok && m.arena == a {
		m.keep(b.Address())
	}
	return owned
}

// Used returns the requested bytes in use.
func (a *Arena) Used() uint64 {
	dropped.TakeBack()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.bytes
}

// Left is memory of an arena that is still referenced.
type Left struct {
	Blocks int
	Bytes  uint64          // as requested
	ByTag  []memmgr.Holder // largest first; without kept memory
}

// String describes the memory that is left, "" for none.
func (l Left) String() string {
	if l.Blocks == 0 {
		return ""
	}
	s := fmt.Sprintf("%d bytes in %d blocks are held beyond the end of the arena", l.Bytes, l.Blocks)
	sep := ": by "
	for _, h := range l.ByTag {
		s += fmt.Sprintf("%s%s %d in %d", sep, cmp.Or(h.Tag, "(no tag)"), h.Bytes, h.Count)
		sep = ", "
	}
	return s
}

// Left returns the arena's memory in use without kept memory. After End this is the memory
// with references of other owners.
func (a *Arena) Left() Left {
	dropped.TakeBack()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.left()
}

// left is Left. a.mu is held.
func (a *Arena) left() Left {
	l := Left{Blocks: a.out.blocks - a.kept.blocks, Bytes: a.out.bytes - a.kept.bytes}
	if l.Blocks == 0 {
		return l
	}
	l.ByTag = a.holders(false)
	return l
}

// holders lists the blocks in use by tag, largest first, with or without those for which Keep was called. a.mu is held.
func (a *Arena) holders(kept bool) []memmgr.Holder {
	tags := map[string]use{}
	for _, m := range a.memories {
		for _, b := range m.blocks {
			if kept || !b.kept {
				u := tags[b.tag]
				u.add(1, b.bytes)
				tags[b.tag] = u
			}
		}
	}
	all := make([]memmgr.Holder, 0, len(tags))
	for tag, u := range tags {
		all = append(all, memmgr.Holder{Tenant: a.options.Name, Tag: tag, Bytes: u.bytes, Count: uint64(u.blocks)})
	}
	slices.SortFunc(all, func(x, y memmgr.Holder) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Tag, y.Tag))
	})
	return all
}

// End ends the arena: it releases all values of the arena, and later allocations fail. It returns
// the memory that other references keep, which stays valid. It does not wait for pending
// work, as Release does not. Another call only returns the remaining memory.
//
// End does not end a request that waits for memory: end its context first. If the request is served later, memmgr.New
// returns a buffer that the caller releases, and that counts as [Outstanding]. usmarray.New fails with
// memmgr.ErrClosed and keeps no memory.
func (a *Arena) End() Left {
	a.mu.Lock()
	first := !a.ended
	a.ended = true
	owned := a.owned
	a.owned = nil
	a.mu.Unlock()
	for x := range owned {
		x.Release()
	}
	if a.heldByOthers() != 0 {
		dropped.TakeBack()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.left()
	if first {
		a.counted = true
		outstanding.add(a.out.blocks, a.out.bytes)
	}
	return l
}

// heldByOthers returns the number of blocks in use that are not kept.
func (a *Arena) heldByOthers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.blocks - a.kept.blocks
}

// closedError returns the error of an operation after End.
func (a *Arena) closedError(op string) error {
	return &memmgr.OpError{Op: "Arena." + op, Kind: memmgr.ErrClosed, Err: fmt.Errorf("the arena %q has ended", a.options.Name)}
}

// outstanding counts the memory of arenas that have ended.
var outstanding counted

type counted struct{ blocks, bytes atomic.Int64 }

func (c *counted) add(blocks int, bytes uint64) {
	c.blocks.Add(int64(blocks))
	c.bytes.Add(int64(bytes))
}

// Outstanding returns the number of blocks in use of all arenas that have ended, including
// kept ones, and their bytes.
func Outstanding() (blocks int, bytes uint64) {
	return int(outstanding.blocks.Load()), uint64(outstanding.bytes.Load())
}

type key struct{}

// NewContext returns a context that carries an arena.
func NewContext(ctx context.Context, a *Arena) context.Context {
	return context.WithValue(ctx, key{}, a)
}

// FromContext returns the arena of a context, nil for none.
func FromContext(ctx context.Context) *Arena {
	a, _ := ctx.Value(key{}).(*Arena)
	return a
}
