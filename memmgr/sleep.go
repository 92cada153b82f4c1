package memmgr

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// SleepOptions controls [Pool.Sleep]. The zero value discards the contents of the memory and
// refuses memory that was exported or that has work pending.
type SleepOptions struct {
	// To stores the contents, from offset 0 on: an *os.File, for example. The caller does not
	// change it until Wake returns, and closes it afterwards. If To has a Sync method, Sleep
	// calls it once after writing.
	To interface {
		io.WriterAt
		io.ReaderAt
	}
	// Into stores the contents in memory of another resource until Wake. It is ignored if To is
	// set.
	Into Resource
	// Context bounds the wait for work that is pending on the memory, and for memory from Into.
	// If it is nil, Sleep refuses memory with work pending.
	Context context.Context
	// Returned states that consumers are done with memory that was exported or given to C,
	// Python arrays included. Without it Sleep refuses such memory, because it cannot determine
	// whether the last reference belongs to Go.
	Returned bool
}

// HeldError is returned by [Pool.Sleep] when other owners hold memory of the tag. It matches
// ErrInUse.
type HeldError struct {
	Tag     string
	Blocks  int          // with the tag
	Holders []LiveBuffer // held blocks, at most 16
	Reasons []string     // for each element of Holders
	Held    int          // held blocks in total
}

// Error describes the first holders.
func (e *HeldError) Error() string {
	s := fmt.Sprintf("memmgr: Pool.Sleep: %d of %d blocks of %q are held", e.Held, e.Blocks, e.Tag)
	for i, h := range e.Holders[:min(len(e.Holders), 3)] {
		s += fmt.Sprintf("; %s at %#x: %s", bytesText(h.Size), h.Address, e.Reasons[i])
		if len(h.Stack) > 0 {
			s += ", allocated at\n" + h.Stack.String()
		}
	}
	return s + "; release views, exports and arrays that share the memory first"
}

// Unwrap returns ErrInUse.
func (e *HeldError) Unwrap() error { return ErrInUse }

// add adds a block, unless it was released meanwhile.
func (e *HeldError) add(f owner.Facts, reason string) {
	b, ok := describe(f)
	if !ok {
		return
	}
	e.Held++
	if len(e.Holders) < mostHeld {
		e.Holders, e.Reasons = append(e.Holders, b), append(e.Reasons, reason)
	}
}

// Sleep returns the memory of all buffers with a tag to the system while the buffers stay at
// their addresses: the whole pages that only these buffers occupy, in memory whose resource is a
// [Discarder]. It returns the number of bytes that were freed. The options determine whether the
// contents are saved. [Pool.Wake] brings the memory back.
//
// If no buffer of the pool has ever had the tag, or if the tag counts as "other" ([Request.Tag]),
// Sleep returns an [*OpError] of kind ErrRequest. If no buffer with the tag is awake, it does
// nothing. It returns a [*HeldError] if a buffer with the tag has a second reference (a view, an array in an operation, a tensor), was exported, or
// was allocated as a [Block] (through another resource); and an [*OpError] of kind ErrInUse if
// work is pending and there is no context to wait with. After an error all memory is awake and
// intact.
//
// Until Wake, operations on the memory of a sleeping buffer fail: with an error of kind
// ErrAsleep if the method returns an error, else by a panic with a [*UseError] that matches it.
// Methods that describe the buffer, such as Size and Address, and Release work as usual. Accesses
// through a slice from [Buffer.Bytes] or an address from Data are not detected: they read zeros
// unless something was written meanwhile, and writes occupy memory again and are lost at Wake if
// the contents were saved.
func (p *Pool) Sleep(tag string, options SleepOptions) (freed uint64, err error) {
	if err := p.checkSleep(tag, &options); err != nil {
		return 0, err
	}
	s := &p.sleep
	s.turn.Lock()
	defer s.turn.Unlock()
	g := &sleepGroup{tag: findTag(tag)}
	if !p.hasTag(g.tag) {
		return 0, p.unknownTag("Pool.Sleep", tag)
	}
	err = p.suspend(g, tag, &options)
	if err == nil && len(g.blocks) == 0 {
		return 0, nil
	}
	if err == nil {
		freed, err = s.release(g, &options)
	}
	if err != nil {
		p.freeReleased(s.end(g))
		return 0, err
	}
	p.freeReleased(s.markAsleep(g))
	return freed, nil
}

// Wake brings the memory with a tag back at the same addresses, with the contents that Sleep
// saved; if it saved none, the contents are undefined. If contents cannot be read or differ from
// those that were saved, Wake returns an error, the memory stays asleep, and Wake may be called
// again. If no buffer with the tag is asleep, it does nothing. If no buffer of the pool has ever
// had the tag, it returns an [*OpError] of kind ErrRequest.
func (p *Pool) Wake(tag string) error {
	s := &p.sleep
	s.turn.Lock()
	defer s.turn.Unlock()
	number := findTag(tag)
	if !p.hasTag(number) {
		return p.unknownTag("Pool.Wake", tag)
	}
	for g := s.latest(number); g != nil; g = s.latest(number) {
		if err := s.restore(g); err != nil {
			_, again := s.discard(g)
			p.freeReleased(s.markAsleep(g))
			return s.fail("Pool.Wake", errors.Join(err, again))
		}
		p.freeReleased(s.end(g))
	}
	return nil
}

// hasTag reports whether a buffer of the pool has ever had the tag with this number.
func (p *Pool) hasTag(tag uint32) bool {
	found := p.account.tagged.has(tag)
	p.eachTenant(func(t *Tenant) { found = found || t.tagged.has(tag) })
	return found
}

func (p *Pool) unknownTag(op, tag string) error {
	return &OpError{Op: op, Place: p.Place(), Kind: ErrRequest,
		Err: fmt.Errorf("no buffer of the pool has had the tag %q; set Request.Tag when the memory is allocated", tag)}
}

// checkSleep reports why Sleep cannot work at all.
func (p *Pool) checkSleep(tag string, o *SleepOptions) error {
	s := &p.sleep
	switch {
	case tag == "":
		return s.refuse(ErrRequest, "a tag is needed; memory gets one from Request.Tag")
	case s.pages == nil:
		return s.refuse(errors.ErrUnsupported, "the upstream is no Discarder: its memory has no pages to give back")
	case o.Into == Resource(p):
		return s.refuse(ErrRequest, "the contents cannot be kept in the pool that sleeps")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &OpError{Op: "Pool.Sleep", Place: p.Place(), Kind: ErrClosed}
	}
	return nil
}

// suspend makes the handles of all blocks with the tag stale, so that no new use begins, and
// waits for the work on them. It fails if other owners hold some of them.
func (p *Pool) suspend(g *sleepGroup, tag string, o *SleepOptions) error {
	held := &HeldError{Tag: tag}
	for segment, more := int32(0), true; more; segment++ {
		more = p.suspendSegment(segment, g, o, held)
	}
	if held.Held > 0 {
		return held
	}
	return p.sleep.awaitWork(g, o)
}

// suspendSegment suspends the blocks with the tag in one segment, and reports whether there are
// more segments.
func (p *Pool) suspendSegment(segment int32, g *sleepGroup, o *SleepOptions, held *HeldError) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heap.WalkUsed(segment, func(user uint32) {
		if user != 0 {
			p.sleep.suspend(owner.At(user), segment, g, o, held)
		}
	})
}

// freeReleased frees blocks that their users released while they slept.
func (p *Pool) freeReleased(released []*sleepingBlock) {
	for _, b := range released {
		c := b.ref.Cell()
		if b.dropped {
			p.slowFree(c)
			continue
		}
		b.ref.Resume()
		if last, _ := b.ref.TryUnref(); last {
			p.freeCell(c)
		}
	}
}

// Asleep reports whether the memory sleeps ([Pool.Sleep]).
func (b Buffer) Asleep() bool { return b.ref.Suspended() }

// releaseAsleep releases a stale handle, and reports whether it was stale because its memory
// slept.
func (b Buffer) releaseAsleep() bool {
	for !b.ref.Gone() { // asleep, or woken since the handle was found stale
		p, ok := resourceOfCell(b.ref.Cell()).(*Pool)
		if !ok {
			return false
		}
		if released, ok := p.sleep.releaseBlock(b.ref); ok {
			p.freeReleased(released)
			return true
		}
		// It wakes up now.
		if last, ok := b.ref.TryUnref(); ok {
			if last {
				p.freeCell(b.ref.Cell())
			}
			return true
		}
	}
	return false
}

var errAsleep = errors.New("the memory sleeps; Pool.Wake brings it back")

// awake returns an error while the memory sleeps.
func (b Buffer) awake(op string) error {
	if !b.ref.Suspended() {
		return nil
	}
	return accessError(op, b.ref.Cell(), ErrAsleep, errAsleep)
}

// use adds a reference for an operation on the memory, which the operation ends with Release.
// While it holds the reference, the memory is neither freed nor put to sleep.
func (b Buffer) use(op string) (*owner.Cell, error) {
	for !b.ref.TryRetain() {
		if err := b.awake(op); err != nil {
			return nil, err
		}
		if b.ref.Gone() {
			panic(b.stale(op))
		}
		// It woke up between the two checks.
	}
	return b.ref.Cell(), nil
}
