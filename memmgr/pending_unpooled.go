package memmgr

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
	"github.com/usmbridge/usmbridge/memmgr/internal/order"
)

// unpooled holds memory that is in no pool and was released with work pending, for one Synchronizer.
// Each piece has a dead cell: that of the memory, or one that [FreeAfter] made.
//
// It is the lock of its pending part. Unlock frees the memory whose work has ended, after it released
// the lock.
type unpooled struct {
	block.Mutex
	pending pending
	keeper  *keeperState
	frees   map[*owner.Cell]func()
	ended   []*owner.Cell // to free at the next Unlock
	n       int           // pieces that were not freed; keeper.mu guards it
}

// Unlock implements sync.Locker.
func (u *unpooled) Unlock() {
	ended, k := u.ended, u.keeper
	if len(ended) == 0 {
		u.Mutex.Unlock()
		return
	}
	frees := make([]func(), len(ended))
	for i, c := range ended {
		frees[i] = u.frees[c]
		delete(u.frees, c)
		block.SetState(c, block.Free)
		owner.Recycle(c)
	}
	u.ended = nil
	k.mu.Lock()
	k.freeing += len(frees)
	k.mu.Unlock()
	u.Mutex.Unlock()
	for _, free := range frees {
		free()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.freeing -= len(frees)
	k.freed.Broadcast()
	if u.n -= len(frees); u.n == 0 {
		delete(k.unpooled, u.pending.sync)
	}
}

// unpooledOf returns the memory of a Synchronizer, with one more piece counted.
func (k *keeperState) unpooledOf(s Synchronizer) *unpooled {
	if !reflect.ValueOf(s).Comparable() {
		s = &struct{ Synchronizer }{s}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.unpooled[s]
	if u == nil {
		u = &unpooled{keeper: k, frees: map[*owner.Cell]func(){}}
		block.SetRank(&u.Mutex, block.RankPool)
		u.pending.init(u, s, func(n uint64) {
			failedRelease("%d pieces of memory wait for work on the device: %w", n, errStalled)
		})
		u.pending.serveWaiters = func() {}
		u.pending.complete = func(c *owner.Cell) {
			u.pending.dropWork(c)
			u.ended = append(u.ended, c)
		}
		k.unpooled[s] = u
	}
	u.n++
	k.added++
	k.start()
	return u
}

// after calls free once the work on the memory of a dead cell has ended, and recycles the cell. The
// work is that of its event and, if the memory was shown to other libraries, of its queues.
func (k *keeperState) after(s Synchronizer, c *owner.Cell, free func()) {
	u := k.unpooledOf(s)
	block.SetState(c, block.InHand)
	block.SetClass(c, block.NoClass)
	refused := false
	u.Lock()
	u.frees[c] = free
	if c.Flags()&order.ShownFlags == 0 {
		u.pending.add(c)
	} else {
		block.SetState(c, block.InUse)
		u.pending.addReturned(c)
		u.pending.fence()
		refused = slices.Contains(u.pending.refused, c)
	}
	u.Unlock()
	if refused {
		failedRelease("memory waits for work on the device: %w", errNoBarrier)
	}
}

func failedRelease(format string, args ...any) {
	backgroundFailed("Buffer.Release", &OpError{Op: "Buffer.Release", Err: fmt.Errorf(format, args...)})
}

var errNoBarrier = errors.New("its queue refuses barriers, so the end of its consumers' work cannot be observed")

// allUnpooled lists the unpooled memory.
func (k *keeperState) allUnpooled() []*unpooled {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.unpooled))
}

// flush waits until all unpooled memory is freed, including that which its frees add, but not for
// stalled work beyond the probes.
func (k *keeperState) flush() {
	for again := true; again; {
		k.mu.Lock()
		added := k.added
		k.mu.Unlock()
		for _, u := range k.allUnpooled() {
			u.pending.awaitAll()
		}
		k.mu.Lock()
		for k.freeing > 0 {
			k.freed.Wait()
		}
		again = k.added != added
		k.mu.Unlock()
	}
}
