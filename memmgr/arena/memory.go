package arena

import (
	"fmt"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/dropped"
	"github.com/usmbridge/usmbridge/syclobj"
)

// memory is the memory of an arena over one resource.
type memory struct {
	arena  *Arena
	from   memmgr.Resource
	blocks map[uintptr]block // in use, by address; guarded by arena.mu
}

// block is one block in use.
type block struct {
	bytes uint64
	tag   string
	kept  bool
}

// Adopt makes the arena the owner of x, as with [Arena.Own]. usmarray calls it for new arrays.
func (m *memory) Adopt(x interface {
	Release()
	Valid() bool
}) error {
	return m.arena.Own(x)
}

// Place implements memmgr.Resource.
func (m *memory) Place() *syclobj.Place { return m.from.Place() }

// Upstream returns the resource that allocates the memory.
func (m *memory) Upstream() memmgr.Resource { return m.from }

// Allocate implements memmgr.Resource. It fails with memmgr.ErrClosed after the end of the
// arena and with a memmgr.OutOfMemoryError that wraps ErrLimit above its limit.
func (m *memory) Allocate(r memmgr.Request) (memmgr.Block, error) {
	if err := r.Check(); err != nil {
		return memmgr.Block{}, err
	}
	size := uint64(r.Size)
	if err := m.arena.charge(size); err != nil {
		dropped.TakeBack() // C may have dropped memory of this arena
		if err = m.arena.charge(size); err != nil {
			return memmgr.Block{}, m.refused(&r, err)
		}
	}
	a, got := m.arena, false
	defer func() { // also if the resource panics
		if !got {
			a.mu.Lock()
			a.charged -= size
			a.mu.Unlock()
		}
	}()
	b, err := m.from.Allocate(r)
	if err != nil || b.Address == 0 { // package memmgr refuses a block without an address
		return b, err
	}
	got = true
	a.mu.Lock()
	defer a.mu.Unlock()
	m.blocks[b.Address] = block{bytes: size, tag: r.Tag}
	a.out.add(1, size)
	if a.counted { // the arena has ended since
		outstanding.add(1, size)
	}
	return b, nil
}

// Free implements memmgr.Resource.
func (m *memory) Free(b memmgr.Block) {
	m.remove(b.Address)
	m.from.Free(b)
}

// remove removes a block from the account.
func (m *memory) remove(address uintptr) {
	a := m.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	was, ok := m.blocks[address]
	if !ok {
		panic(&memmgr.UseError{Op: "arena.Free", Err: fmt.Errorf("%#x: not allocated from this arena", address)})
	}
	delete(m.blocks, address)
	a.charged -= was.bytes
	a.out.add(-1, -was.bytes)
	if was.kept {
		a.kept.add(-1, -was.bytes)
	}
	if a.counted {
		outstanding.add(-1, -was.bytes)
	}
}

// keep marks a block that may outlive the arena. arena.mu is held.
func (m *memory) keep(address uintptr) {
	if b, ok := m.blocks[address]; ok && !b.kept {
		b.kept = true
		m.blocks[address] = b
		m.arena.kept.add(1, b.bytes)
	}
}

// charge counts bytes before their allocation. It fails above the limit and after the end.
func (a *Arena) charge(bytes uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return a.closedError("Allocate")
	}
	if limit := a.options.Limit; limit != 0 && (a.charged > limit || bytes > limit-a.charged) {
		return ErrLimit
	}
	a.charged += bytes
	return nil
}

// refused returns the error of a request that charge refused.
func (m *memory) refused(r *memmgr.Request, err error) error {
	if err != ErrLimit { //nolint:errorlint // charge's own
		return err
	}
	a := m.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	return &memmgr.OutOfMemoryError{
		Request: *r, Place: m.Place(), Tenant: a.options.Name, Rounded: uint64(r.Size), Allocated: a.charged,
		Limit: a.options.Limit, Holders: a.holders(true), Err: ErrLimit,
	}
}
