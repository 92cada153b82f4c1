package arena

import (
	"fmt"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/dropped"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Memory is an arena's memory above one resource: a memmgr.Resource. [Arena.Over] makes it.
type Memory struct {
	arena  *Arena
	from   memmgr.Resource
	blocks map[uintptr]block // that are out, by address; guarded by the arena
}

// block is one piece of memory that is out.
type block struct {
	bytes uint64
	tag   string
	kept  bool
}

// Arena returns the arena that the memory is of.
func (m *Memory) Arena() *Arena { return m.arena }

// Adopt implements [memmgr.Adopter]: the arena owns x, as with [Arena.Own].
func (m *Memory) Adopt(x interface {
	Release()
	Valid() bool
}) error {
	return m.arena.Own(x)
}

// Place implements memmgr.Resource.
func (m *Memory) Place() *syclobj.Place { return m.from.Place() }

// Upstream returns the resource that the memory comes from.
func (m *Memory) Upstream() memmgr.Resource { return m.from }

// Allocate implements memmgr.Resource. Errors of its own: memmgr.ErrClosed after the arena's
// end, a memmgr.OutOfMemoryError with ErrLimit above its limit.
func (m *Memory) Allocate(r memmgr.Request) (memmgr.Block, error) {
	if err := r.Check(); err != nil {
		return memmgr.Block{}, err
	}
	size := uint64(r.Size)
	if err := m.arena.charge(size); err != nil {
		dropped.TakeBack() // of what C has dropped some may be ours
		if err = m.arena.charge(size); err != nil {
			return memmgr.Block{}, m.refused(&r, err)
		}
	}
	b, err := m.from.Allocate(r)
	a := m.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.charged -= size
		return b, err
	}
	m.blocks[b.Address] = block{bytes: size, tag: r.Tag}
	a.out.add(1, size)
	a.note(r.Tag, 1, size)
	if a.counted { // it ended meanwhile
		outstanding.add(1, size)
	}
	return b, nil
}

// Free implements memmgr.Resource.
func (m *Memory) Free(b memmgr.Block) {
	m.forget(b.Address)
	m.from.Free(b)
}

// forget takes a block off the account.
func (m *Memory) forget(address uintptr) {
	a := m.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	was, ok := m.blocks[address]
	if !ok {
		panic(&memmgr.UseError{Op: "arena.Memory.Free", Err: fmt.Errorf("%#x is not out, or not of this arena", address)})
	}
	delete(m.blocks, address)
	a.charged -= was.bytes
	a.out.add(-1, -was.bytes)
	a.note(was.tag, -1, -was.bytes)
	if was.kept {
		a.kept.add(-1, -was.bytes)
	}
	if a.counted {
		outstanding.add(-1, -was.bytes)
	}
}

// keep notes that a block is meant to be held beyond the end. The arena's mutex is held.
func (m *Memory) keep(address uintptr) {
	if b, ok := m.blocks[address]; ok && !b.kept {
		b.kept = true
		m.blocks[address] = b
		m.arena.kept.add(1, b.bytes)
	}
}

// note counts by tag. a.mu is held.
func (a *Arena) note(tag string, blocks int, bytes uint64) {
	if a.tags == nil {
		a.tags = map[string]use{}
	}
	u := a.tags[tag]
	u.add(blocks, bytes)
	if u.blocks == 0 {
		delete(a.tags, tag)
		return
	}
	a.tags[tag] = u
}

// charge counts bytes that are about to be allocated.
func (a *Arena) charge(bytes uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return a.tooLate("Allocate")
	}
	if limit := a.options.Limit; limit != 0 && (a.charged > limit || bytes > limit-a.charged) {
		return ErrLimit
	}
	a.charged += bytes
	return nil
}

// refused makes the error of a request that was not charged.
func (m *Memory) refused(r *memmgr.Request, err error) error {
	if err != ErrLimit { //nolint:errorlint // charge's own
		return err
	}
	a := m.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	return &memmgr.OutOfMemoryError{
		Request: *r, Place: m.Place(), Tenant: a.options.Name, Rounded: uint64(r.Size), Allocated: a.charged,
		Limit: a.options.Limit, Holders: holders(a.options.Name, a.tags), Err: ErrLimit,
	}
}
