package memmgr

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// SleepOptions say what becomes of the contents of memory that sleeps. The zero
// value discards them.
type SleepOptions struct {
	// To keeps the contents, from offset 0 on: an *os.File, for example. The caller
	// leaves it as it is until Wake, and ends it afterwards. A Sync method is called
	// once all is written.
	To interface {
		io.WriterAt
		io.ReaderAt
	}
	// Into keeps the contents in memory of another resource, until Wake. To comes
	// first.
	Into Resource
	// Context bounds the waiting for work that is pending on the memory, and for
	// room in Into. nil: memory with work pending does not fall asleep.
	Context context.Context
	// Returned vouches for memory that was exported or given to C, Python's arrays
	// among it: that its consumers are done with it. Without it such memory does not
	// fall asleep, because nothing tells whether the one reference that is left is
	// Go's.
	Returned bool
}

// HeldError is why memory does not fall asleep: somebody else holds some of it. It
// matches ErrInUse.
type HeldError struct {
	Tag     string
	Blocks  int          // that carry the tag
	Holders []LiveBuffer // what is held, 16 at most
	Reasons []string     // why, for each of Holders
	Held    int          // how many are held in all
}

// Error names the first holders.
func (e *HeldError) Error() string {
	s := fmt.Sprintf("memmgr: Pool.Sleep: %d of %d blocks of %q are held", e.Held, e.Blocks, e.Tag)
	for i, h := range e.Holders[:min(len(e.Holders), 3)] {
		s += fmt.Sprintf("; %s at %#x: %s", bytesText(h.Size), h.Address, e.Reasons[i])
		if h.Stack != "" {
			s += ", allocated at\n" + h.Stack
		}
	}
	return s + "; release views, exports and arrays that share the memory first"
}

// Unwrap gives ErrInUse.
func (e *HeldError) Unwrap() error { return ErrInUse }

// elastic is what a pool knows of memory that sleeps.
type elastic struct {
	turn   rankedMutex  // one Sleep or Wake at a time
	asleep atomic.Int64 // blocks: nobody else need look at the rest

	mu     rankedMutex // after the pool's lock; nothing is waited for with it
	byCell map[*owner.Cell]*sleeper
	byTag  map[uint32][]*slumber
}

// slumber is what one Sleep put to sleep.
type slumber struct {
	tag    uint32
	blocks []*sleeper
	left   int        // of blocks, those that nobody released; guarded by elastic.mu
	store  sleepStore // nil: contents were discarded
}

// sleeper is a block asleep, or on its way there or back.
type sleeper struct {
	of      *slumber
	ref     owner.Ref // as its users know it
	segment int32
	address uintptr
	size    uintptr
	from    uintptr // the whole pages that go back
	bytes   uintptr
	at      int64  // where the store has them
	sum     uint32 // of their contents

	// Guarded by elastic.mu.
	moving bool // contents are on their way: nobody may have the memory
	gone   bool // its user released it meanwhile
	dead   bool // and its cell came home already
}

// Sleep gives the memory of all buffers with a tag back to the system while the
// buffers stay: the whole pages that only they own, in memory whose resource is a
// [Discarder]. Addresses stay as they are. It returns the bytes that were really
// freed. Contents are discarded or saved as the options say, and [Pool.Wake] brings
// the memory back.
//
// A tag that no buffer of the pool has ever had is an [*OpError] of kind ErrRequest.
// When no buffer of the tag is awake, Sleep does nothing.
//
// It refuses with a [*HeldError] while somebody else holds memory of the tag: a
// second reference (a view, an array in an operation, a tensor), an export, a block
// that was taken without a buffer (through another resource); and with an
// [*OpError] of kind ErrInUse when work is pending and there is no context to wait
// with. When saving fails everything is awake and intact.
//
// Until Wake, what touches a sleeping buffer fails: with an error of kind ErrAsleep
// where the method returns one, else by a panic with a [*UseError] that matches it.
// Size, Address and the like still tell, and Release ends the buffer as ever. What
// nobody counts cannot be refused: a slice that [Buffer.Bytes] gave, an address that
// Data gave. Such a slice reads zeros while the buffer sleeps, as long as nothing
// writes there; what is written through it is lost at Wake when contents were
// saved, and takes memory again.
func (p *Pool) Sleep(tag string, options SleepOptions) (freed uint64, err error) {
	if err := p.canSleep(tag, &options); err != nil {
		return 0, err
	}
	e := &p.elastic
	e.turn.Lock()
	defer e.turn.Unlock()
	s := &slumber{tag: knownTag(tag)}
	if !p.hasTag(s.tag) {
		return 0, p.unknownTag("Pool.Sleep", tag)
	}
	if err := p.suspend(s, tag, &options); err != nil {
		p.awaken(s)
		return 0, err
	}
	if len(s.blocks) == 0 {
		return 0, nil
	}
	if err := p.fallAsleep(s, &options); err != nil {
		p.awaken(s)
		return 0, p.sleepError("Pool.Sleep", err)
	}
	freed, err = p.discard(s)
	if err != nil {
		err = errors.Join(err, p.restore(s))
		p.awaken(s)
		return 0, p.sleepError("Pool.Sleep", err)
	}
	p.settleDown(s)
	return freed, nil
}

// Wake brings the memory with a tag back that Sleep put to sleep: the same
// addresses, with the contents that were saved, byte for byte; undefined where they
// were discarded. When contents cannot be read back, or are not those that were
// saved, the memory stays asleep and Wake may be tried again. When no buffer of the tag
// is asleep, Wake does nothing. A tag that no buffer of the pool has ever had is an
// [*OpError] of kind ErrRequest.
func (p *Pool) Wake(tag string) error {
	e := &p.elastic
	e.turn.Lock()
	defer e.turn.Unlock()
	number := knownTag(tag)
	if !p.hasTag(number) {
		return p.unknownTag("Pool.Wake", tag)
	}
	for {
		s := e.beginWake(number)
		if s == nil {
			return nil
		}
		if err := p.restore(s); err != nil {
			_, again := p.discard(s)
			p.settleDown(s)
			return p.sleepError("Pool.Wake", errors.Join(err, again))
		}
		p.awaken(s)
	}
}

// hasTag reports whether a buffer of the pool has ever had the tag with this number.
func (p *Pool) hasTag(tag uint32) bool {
	found := p.tagged.has(tag)
	p.eachTenant(func(t *Tenant) { found = found || t.tagged.has(tag) })
	return found
}

func (p *Pool) unknownTag(op, tag string) error {
	return &OpError{Op: op, Place: p.Place(), Kind: ErrRequest,
		Err: fmt.Errorf("no buffer of the pool has had the tag %q; set Request.Tag when the memory is allocated", tag)}
}

func (p *Pool) canSleep(tag string, o *SleepOptions) error {
	const op = "Pool.Sleep"
	if tag == "" {
		return p.refuseSleep(ErrRequest, "a tag is needed; memory gets one from Request.Tag")
	}
	if p.purging.to == nil {
		return p.refuseSleep(errors.ErrUnsupported, "the upstream is no Discarder: its memory has no pages to give back")
	}
	if o.Into == Resource(p) {
		return p.refuseSleep(ErrRequest, "the contents cannot be kept in the pool that sleeps")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &OpError{Op: op, Place: p.Place(), Kind: ErrClosed}
	}
	return nil
}

func (p *Pool) refuseSleep(kind error, format string, args ...any) error {
	return &OpError{Op: "Pool.Sleep", Place: p.Place(), Kind: kind, Err: fmt.Errorf(format, args...)}
}

func (p *Pool) sleepError(op string, err error) error {
	return &OpError{Op: op, Place: p.Place(), Err: err}
}

// suspend makes the handles of all blocks of a tag stale, so that nobody begins to
// use one, and refuses when somebody does already or work is pending.
func (p *Pool) suspend(s *slumber, tag string, o *SleepOptions) error {
	held := &HeldError{Tag: tag}
	for segment, more := int32(0), true; more; segment++ {
		more = p.suspendSegment(s, segment, o, held)
	}
	if held.Held > 0 {
		return held
	}
	return p.awaitWork(s, o)
}

// suspendSegment does so in one segment; false when there are no more of them.
func (p *Pool) suspendSegment(s *slumber, segment int32, o *SleepOptions, held *HeldError) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &p.elastic
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.byCell == nil {
		e.byCell, e.byTag = map[*owner.Cell]*sleeper{}, map[uint32][]*slumber{}
	}
	return p.heap.WalkUsed(segment, func(user uint32) {
		if user == 0 {
			return
		}
		c := owner.At(user)
		if e.byCell[c] != nil || c.Tag != s.tag {
			return
		}
		r := c.Ref()
		count := r.Count()
		if count == 0 || c.Tag != s.tag {
			return // released just now
		}
		held.Blocks++
		if reason := holder(c, int(count), o); reason != "" || !r.Suspend() {
			held.add(c, reason)
			return
		}
		b := &sleeper{of: s, ref: r, segment: segment, address: c.Address, size: uintptr(c.Size), moving: true}
		e.byCell[c] = b
		setState(c, stateAsleep)
		e.asleep.Add(1)
		s.blocks = append(s.blocks, b)
	})
}

// holder tells who beside one owner holds a block, "" when nobody does.
func holder(c *owner.Cell, count int, o *SleepOptions) string {
	switch flags := c.Flags(); {
	case flags&owner.Lent != 0:
		return "it was taken through another resource, which knows it by its address"
	case count > 1:
		return fmt.Sprintf("it has %d references", count)
	case flags&owner.Shown != 0 && !o.Returned:
		return "C was given it (SleepOptions.Returned says that C is done with it)"
	case flags&owner.Exported != 0 && !o.Returned:
		return "it was exported (SleepOptions.Returned says that its consumers are done)"
	}
	return ""
}

func (e *HeldError) add(c *owner.Cell, reason string) {
	e.Held++
	if len(e.Holders) == mostHeld {
		return
	}
	if reason == "" {
		reason = "it was retained just now"
	}
	e.Holders = append(e.Holders, describe(c, int(c.Count())))
	e.Reasons = append(e.Reasons, reason)
}

// mostHeld is how many holders an error lists.
const mostHeld = 16

// fallAsleep settles which pages go back, and saves them.
func (p *Pool) fallAsleep(s *slumber, o *SleepOptions) error {
	s.plan()
	switch {
	case o.To != nil:
		s.store = callersStore{o.To}
	case !missing(o.Into):
		s.store = newMemoryStore(o.Into, o.Context)
	default:
		return nil
	}
	return p.save(s, o.Context)
}

// plan finds for each block what of it lies in pages that the blocks of this
// slumber fill together.
func (s *slumber) plan() {
	slices.SortFunc(s.blocks, func(a, b *sleeper) int { return cmp.Compare(a.address, b.address) })
	at := int64(0)
	for run := 0; run < len(s.blocks); {
		end := run + 1
		for end < len(s.blocks) && s.blocks[end].segment == s.blocks[run].segment &&
			s.blocks[end].address == s.blocks[end-1].address+s.blocks[end-1].size {
			end++
		}
		from := s.blocks[run].address
		last := s.blocks[end-1]
		from, bytes := wholePages(from, last.address+last.size-from)
		for _, b := range s.blocks[run:end] {
			b.from = max(b.address, from)
			b.bytes = 0
			if to := min(b.address+b.size, from+bytes); to > b.from {
				b.bytes = to - b.from
			}
			b.at = at
			at += int64(b.bytes)
		}
		run = end
	}
}

// ranges calls f for what goes back: the blocks' parts, joined where they meet.
func (s *slumber) ranges(f func(from, bytes uintptr) error) error {
	for i := 0; i < len(s.blocks); {
		b := s.blocks[i]
		from, to := b.from, b.from+b.bytes
		for i++; i < len(s.blocks) && s.blocks[i].segment == b.segment && s.blocks[i].from == to; i++ {
			to += s.blocks[i].bytes
		}
		// Blocks that were released while they slept left the list, so that what
		// is left may begin or end within a page.
		if from, bytes := wholePages(from, to-from); bytes > 0 {
			if err := f(from, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// discard gives the pages back and returns the bytes that were in memory.
func (p *Pool) discard(s *slumber) (freed uint64, err error) {
	err = s.ranges(func(from, bytes uintptr) error {
		before := residentBytes(from, bytes)
		if err := p.purging.to.Discard(from, bytes); err != nil {
			return err
		}
		freed += uint64(before - min(before, residentBytes(from, bytes)))
		return nil
	})
	return freed, err
}

// settleDown ends the moving of blocks that sleep now.
func (p *Pool) settleDown(s *slumber) {
	e := &p.elastic
	e.mu.Lock()
	var gone []*sleeper
	s.blocks = slices.DeleteFunc(s.blocks, func(b *sleeper) bool {
		b.moving = false
		if b.gone {
			e.forget(b)
			gone = append(gone, b)
		}
		return b.gone
	})
	s.left = len(s.blocks)
	none := s.left == 0
	if !none {
		e.byTag[s.tag] = append(e.byTag[s.tag], s)
	}
	e.mu.Unlock()
	if none {
		s.end()
	}
	p.bury(gone)
}

// beginWake takes the latest slumber of a tag, nil when there is none.
func (e *elastic) beginWake(tag uint32) *slumber {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.byTag[tag]
	if len(all) == 0 {
		return nil
	}
	s := all[len(all)-1]
	e.leave(s)
	s.blocks = slices.DeleteFunc(s.blocks, func(b *sleeper) bool { return b.gone })
	for _, b := range s.blocks {
		b.moving = true
	}
	return s
}

// awaken gives the blocks of a slumber back to their users, and ends it.
func (p *Pool) awaken(s *slumber) {
	e := &p.elastic
	e.mu.Lock()
	var gone []*sleeper
	for _, b := range s.blocks {
		e.forget(b)
		b.moving = false
		if b.gone {
			gone = append(gone, b)
		} else {
			b.ref.Resume()
		}
	}
	e.mu.Unlock()
	s.blocks = nil
	s.end()
	p.bury(gone)
}

// end lets go of the store.
func (s *slumber) end() {
	if s != nil && s.store != nil {
		s.store.end()
		s.store = nil
	}
}

// leave takes a slumber off the tables. e.mu is held.
func (e *elastic) leave(s *slumber) {
	all := slices.DeleteFunc(e.byTag[s.tag], func(o *slumber) bool { return o == s })
	if e.byTag[s.tag] = all; len(all) == 0 {
		delete(e.byTag, s.tag)
	}
}

// forget takes a block off the tables. e.mu is held.
func (e *elastic) forget(b *sleeper) {
	delete(e.byCell, b.ref.Cell())
	setState(b.ref.Cell(), stateInUse)
	e.asleep.Add(-1)
}

// forgetAsleep does so with one that was released while it slept, and returns its
// slumber if that was the last of it: the caller ends it, without the lock. e.mu is
// held.
func (e *elastic) forgetAsleep(b *sleeper) (over *slumber) {
	e.forget(b)
	s := b.of
	if s.left--; s.left > 0 {
		return nil
	}
	e.leave(s)
	return s
}

// bury gives back blocks that were released while their contents moved.
func (p *Pool) bury(gone []*sleeper) {
	for _, b := range gone {
		c := b.ref.Cell()
		if b.dead {
			p.slowFree(c)
			continue
		}
		b.ref.Resume()
		if last, _ := b.ref.TryUnref(); last {
			finish(p, c)
		}
	}
}

// releaseAsleep is Release of a buffer that sleeps. It reports whether it did
// sleep; if not, it has woken up meanwhile.
func (p *Pool) releaseAsleep(r owner.Ref) bool {
	e := &p.elastic
	e.mu.Lock()
	b := e.byCell[r.Cell()]
	if b == nil || b.ref != r {
		e.mu.Unlock()
		return false
	}
	if b.gone {
		e.mu.Unlock()
		return true // a release too many
	}
	b.gone = true
	if b.moving {
		e.mu.Unlock()
		return true
	}
	over := e.forgetAsleep(b)
	e.mu.Unlock()
	over.end()
	p.bury([]*sleeper{b})
	return true
}

// cameHome is told of the dead cell of a block that C dropped while it slept, and
// reports whether its memory must not be used yet.
func (p *Pool) cameHome(c *owner.Cell) bool {
	e := &p.elastic
	e.mu.Lock()
	b := e.byCell[c]
	if b == nil {
		e.mu.Unlock()
		return false
	}
	b.gone = true
	if b.moving {
		b.dead = true
		e.mu.Unlock()
		return true
	}
	over := e.forgetAsleep(b)
	e.mu.Unlock()
	over.end()
	return false
}

// Asleep reports whether the memory sleeps ([Pool.Sleep]).
func (b Buffer) Asleep() bool { return b.ref.Suspended() }

// endAsleep is Release of a handle that is stale, and reports whether it was so
// because its memory slept.
func (b Buffer) endAsleep() bool {
	for !b.ref.Gone() { // asleep, or it has woken up since it was found stale
		p, ok := resourceOfCell(b.ref.Cell()).(*Pool)
		if !ok || p.releaseAsleep(b.ref) {
			return ok
		}
		// It wakes up right now.
		if last, ok := b.ref.TryUnref(); ok {
			if last {
				finish(p, b.ref.Cell())
			}
			return true
		}
	}
	return false
}

var errAsleep = errors.New("the memory sleeps; Pool.Wake brings it back")

// awake is an error while the memory sleeps.
func (b Buffer) awake(op string) error {
	if !b.ref.Suspended() {
		return nil
	}
	return accessError(op, b.ref.Cell(), ErrAsleep, errAsleep)
}

// use takes a reference for an operation that touches the memory, which the
// operation ends with Release: meanwhile the memory neither goes nor falls asleep.
func (b Buffer) use(op string) (*owner.Cell, error) {
	for !b.ref.TryRetain() {
		if err := b.awake(op); err != nil {
			return nil, err
		}
		if b.ref.Gone() {
			panic(b.stale(op))
		}
		// It woke up between the two looks.
	}
	return b.ref.Cell(), nil
}
