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

// ErrLimit is the reason in the memmgr.OutOfMemoryError of a request that the arena's own
// limit refuses.
var ErrLimit = errors.New("the arena's limit is reached")

// Options say what an arena is. The zero value has no name and no limit.
type Options struct {
	// Name stands in errors as the tenant: the request, or its client.
	Name string
	// Limit is the number of bytes, as asked for, that the arena's memory may be at a time,
	// all resources together; 0 for none. It refuses and never waits: what could be waited
	// for is the request's own.
	Limit uint64
	// Choose finds the resource that memory is to come from where a queue and a kind of USM
	// are asked for (syclobj.USMUnknown on the host backend's queue), as Python's arrays do:
	// a tenant's, for one. nil leaves that to whoever asks.
	Choose Chooser
}

// Chooser finds a resource for a queue and a kind of USM. It may be called from any goroutine.
type Chooser func(*syclobj.Queue, syclobj.USMKind) (memmgr.Resource, error)

// Owned is what an arena can own: a *usmarray.Array, a memmgr.Buffer, and whatever else is
// comparable and ends by Release. Valid tells whether it has not been released yet.
type Owned interface {
	Release()
	Valid() bool
}

// Arena is the memory of one request. [New] makes it, [Arena.End] ends it.
type Arena struct {
	options Options

	mu       sync.Mutex
	ended    bool
	counted  bool   // what is out stands in outstanding: not before End has released what it may
	charged  uint64 // bytes that are out, or about to be
	out      use
	kept     use // of what is out: what Keep was called with
	tags     map[string]use
	memories []*Memory
	owned    map[Owned]struct{}
	prune    int // so many owned are looked through for what is released already
}

// use is so many blocks and bytes.
type use struct {
	blocks int
	bytes  uint64
}

func (u *use) add(blocks int, bytes uint64) {
	u.blocks += blocks
	u.bytes += bytes
}

// leastPrune is how many may be owned before anybody looks whether they are alive still.
const leastPrune = 64

// New makes an arena. The caller ends it.
func New(o Options) *Arena { return &Arena{options: o, prune: leastPrune} }

// Name returns the name that it was given.
func (a *Arena) Name() string { return a.options.Name }

// Over returns the arena's memory above a resource, the same for the same one.
func (a *Arena) Over(from memmgr.Resource) *Memory {
	v := reflect.ValueOf(from)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		from = memmgr.NewLimit(from, math.MaxUint64) // which says so
	}
	same := v.IsValid() && v.Comparable()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.memories {
		if same && m.from == from {
			return m
		}
	}
	m := &Memory{arena: a, from: from, blocks: map[uintptr]block{}}
	if !a.ended { // nobody gets memory of it then
		a.memories = append(a.memories, m)
	}
	return m
}

// Resource returns the arena's memory for a queue and a kind of USM: above what Options.Choose
// says; without it above what otherwise says, and without that above memmgr.Default.
func (a *Arena) Resource(q *syclobj.Queue, usm syclobj.USMKind, otherwise Chooser) (*Memory, error) {
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

// Own gives the arena what the caller owns: End releases it. x must be comparable. On error,
// memmgr.ErrClosed after End, it is the caller's still.
func (a *Arena) Own(x Owned) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return a.tooLate("Own")
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

// Keep takes x out of the arena: it is the caller's, who releases it, and its memory, as far
// as it is of this arena, may be held beyond the end without being reported as left. It
// returns whether the arena owned it; what the caller owns already, such as a result of
// Python's, is only not reported.
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
	if m, ok := b.Resource().(*Memory); ok && m.arena == a {
		m.keep(b.Address())
	}
	return owned
}

// Used returns the bytes, as asked for, that are allocated from the arena now.
func (a *Arena) Used() uint64 {
	dropped.TakeBack()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.bytes
}

// Left is memory of an arena that somebody holds beyond its end.
type Left struct {
	Blocks int
	Bytes  uint64          // as asked for
	ByTag  []memmgr.Holder // most bytes first; memory that was kept is not in it
}

// String says it in words, "" where nothing is left.
func (l Left) String() string {
	if l.Blocks == 0 {
		return ""
	}
	s := fmt.Sprintf("%d bytes in %d blocks are held beyond the end of the arena", l.Bytes, l.Blocks)
	for i, h := range l.ByTag {
		tag := h.Tag
		if tag == "" {
			tag = "(no tag)"
		}
		sep := ", "
		if i == 0 {
			sep = ": by "
		}
		s += fmt.Sprintf("%s%s %d in %d", sep, tag, h.Bytes, h.Count)
	}
	return s
}

// Left tells what of the arena's memory is out and was not kept; after End that is what
// others hold.
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
	byTag := map[string]use{}
	for _, m := range a.memories {
		for _, b := range m.blocks {
			if !b.kept {
				u := byTag[b.tag]
				u.add(1, b.bytes)
				byTag[b.tag] = u
			}
		}
	}
	l.ByTag = holders(a.options.Name, byTag)
	return l
}

// holders lists who has what, most bytes first.
func holders(name string, tags map[string]use) []memmgr.Holder {
	all := make([]memmgr.Holder, 0, len(tags))
	for tag, u := range tags {
		all = append(all, memmgr.Holder{Tenant: name, Tag: tag, Bytes: u.bytes, Count: uint64(u.blocks)})
	}
	slices.SortFunc(all, func(x, y memmgr.Holder) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Tag, y.Tag))
	})
	return all
}

// End ends the arena: what it owns is released, and nothing is allocated from it any more. It
// returns what others hold of its memory, which stays valid for them. Work that is pending on
// what is released is not waited for, as with every Release. Calling it again only tells what
// is left.
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
	l, memories := a.left(), a.memories
	if first {
		a.counted = true
		outstanding.add(a.out.blocks, a.out.bytes)
	}
	a.mu.Unlock()
	if first {
		for _, m := range memories {
			_ = memmgr.Close(m) // forgets it; it is nothing that could fail to close
		}
	}
	return l
}

// heldByOthers returns how many blocks are out that nobody said are kept.
func (a *Arena) heldByOthers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.blocks - a.kept.blocks
}

// tooLate is the error of what comes too late.
func (a *Arena) tooLate(op string) error {
	return &memmgr.OpError{Op: "Arena." + op, Kind: memmgr.ErrClosed, Err: fmt.Errorf("the arena %q has ended", a.options.Name)}
}

// outstanding is the memory of arenas that have ended.
var outstanding counted

type counted struct{ blocks, bytes atomic.Int64 }

func (c *counted) add(blocks int, bytes uint64) {
	c.blocks.Add(int64(blocks))
	c.bytes.Add(int64(bytes))
}

// Outstanding returns how many blocks of all arenas that have ended are held still, kept ones
// included, and their bytes.
func Outstanding() (blocks int, bytes uint64) {
	return int(outstanding.blocks.Load()), uint64(outstanding.bytes.Load())
}

type key struct{}

// NewContext returns a context that carries an arena.
func NewContext(ctx context.Context, a *Arena) context.Context {
	return context.WithValue(ctx, key{}, a)
}

// FromContext returns the arena that a context carries, nil for none.
func FromContext(ctx context.Context) *Arena {
	a, _ := ctx.Value(key{}).(*Arena)
	return a
}
