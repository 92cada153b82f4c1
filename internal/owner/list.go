package owner

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// clist is usmb_list.
type clist struct {
	word       uint64
	head       atomic.Uintptr
	waker      uintptr
	id         uint32
	reserved32 uint32
	own        waker
	here       uintptr // C's alone: Go never ends a cell in the place of its list
	_          [10]uint64
}

// List is a drop list: dead cells that anyone pushed, taken as a whole chain by
// whoever drains. Lists live as long as the process, because a cell may come
// home late.
type List struct {
	c      *clist
	drain  func(*Cell)
	batch  func(*List)
	own    bool
	closed atomic.Bool
	busy   atomic.Int32
	// retired: the place can go as soon as nobody drains.
	retired atomic.Bool
	reap    *reaper
}

// Option changes what NewList makes.
type Option func(*List)

// OwnGoroutine gives the list a reaper of its own, because its drain function
// may block for long. Cells that Go releases are pushed on such a list too, so
// that no releasing goroutine blocks.
func OwnGoroutine() Option { return func(l *List) { l.own = true } }

// Batch replaces the cell-by-cell drain: f is called when the list has cells,
// and takes them itself ([List.Take], or usmb_list_run in C).
func Batch(f func(*List)) Option { return func(l *List) { l.batch = f } }

// lists is the table behind usmb_list.id; entry 0 is nil. It is copied on
// write, because every release reads it.
var (
	lists   atomic.Pointer[[]*List]
	listsMu sync.Mutex
)

// NewList makes a list. drain disposes of one dead cell and ends with
// [Recycle], unless it keeps the cell for [Cell.Renew]; it runs in the goroutine
// that releases, or drains, or in a reaper, so it must be safe for concurrent
// use. A nil drain only recycles. Cells with a C function at zero never reach
// it: that function runs and the cell is recycled.
//
// NewList panics when not even one cell can be had, as the runtime does without
// memory.
func NewList(drain func(*Cell), options ...Option) *List {
	c := rawCell()
	if c == nil {
		panic(ErrNoMemory)
	}
	c.clear()
	c.Retire()
	l := &List{c: (*clist)(unsafe.Pointer(c)), drain: drain}
	*l.c = clist{word: c.word.Load() >> 32 << 32, own: waker{fd: -1}}
	if drain == nil {
		l.drain = Recycle
	}
	for _, o := range options {
		o(l)
	}
	listsMu.Lock()
	defer listsMu.Unlock()
	table := []*List{nil}
	if old := lists.Load(); old != nil {
		table = append(table[:0:0], *old...)
	}
	l.c.id = uint32(len(table))
	for i := 1; i < len(table); i++ {
		if table[i] == nil {
			l.c.id = uint32(i)
		}
	}
	if int(l.c.id) == len(table) {
		table = append(table, nil)
	}
	table[l.c.id] = l
	if l.own {
		l.reap = newReaper(&l.c.own, func() []*List { return []*List{l} })
	} else {
		l.reap = commonReaper()
	}
	l.c.waker = uintptr(unsafe.Pointer(l.reap.waker))
	lists.Store(&table)
	if l.own {
		go l.reap.run()
	}
	return l
}

// Pointer returns the list's address for C (usmb_list*).
func (l *List) Pointer() unsafe.Pointer {
	if l == nil {
		return nil
	}
	return unsafe.Pointer(l.c)
}

func (l *List) address() uintptr { return uintptr(l.Pointer()) }

// listOf returns the Go side of a usmb_list, nil for none and for C's own.
func listOf(address uintptr) *List {
	if address == 0 {
		return nil
	}
	return (*lists.Load())[(*clist)(pointer(address)).id]
}

// empty reports whether no cell waits; cheap enough for an allocation path.
func (l *List) empty() bool { return l.c.head.Load() == 0 }

// Head returns the head of the list, 0 while it is empty, for watching it without
// following pointers.
func (l *List) Head() *atomic.Uintptr { return &l.c.head }

// Take returns the chain of waiting cells, oldest first, linked by
// Cell.Next; nil when there is none. The caller owns them.
func (l *List) Take() *Cell {
	c := (*Cell)(pointer(l.c.head.Swap(0)))
	var oldest *Cell
	for c != nil {
		next := c.Next.Cell()
		c.Next = LinkTo(oldest)
		oldest, c = c, next
	}
	return oldest
}

// Drain disposes of every waiting cell in the caller's goroutine. Any number of
// goroutines may drain one list at a time. After Close it does nothing.
func (l *List) Drain() {
	if l.empty() || l.closed.Load() {
		return
	}
	// Counted first and asked again: from here on Retire leaves the place to us.
	l.busy.Add(1)
	defer l.leave()
	switch {
	case l.closed.Load():
	case l.batch != nil:
		l.batch(l)
	default:
		l.dispose(l.Take())
	}
}

// leave ends a drain; the last one gives the place of a retired list back.
func (l *List) leave() {
	if l.busy.Add(-1) == 0 {
		l.vacate()
	}
}

// vacate gives the place of a retired list back, once.
func (l *List) vacate() {
	if l.retired.CompareAndSwap(true, false) {
		Recycle((*Cell)(unsafe.Pointer(l.c)))
	}
}

// dispose finishes a chain: what C must do in one call, the rest by drain.
func (l *List) dispose(chain *Cell) {
	var inC *Cell
	for chain != nil {
		c := chain
		chain = c.Next.Cell()
		if c.AtZero != 0 {
			c.Next = LinkTo(inC)
			inC = c
			continue
		}
		l.drain(c)
	}
	if inC != nil {
		finishInC(inC)
	}
}

func (l *List) drainOne(c *Cell) {
	if l.batch != nil {
		push(c)
		return
	}
	l.drain(c)
}

// Sync drains and then waits until no other goroutine is in the middle of
// draining this list, so that everything pushed before the call is disposed of
// when it returns. Not to be called from a drain function.
func (l *List) Sync() {
	l.Drain()
	for l.busy.Load() != 0 || (!l.empty() && !l.closed.Load()) {
		runtime.Gosched()
		l.Drain()
	}
}

// Close stops the draining for good: cells that come home from now on stay on
// the list, leaked on purpose. For owners that can no longer be asked (an
// interpreter that is shutting down). It does not wait for a drain under way.
func (l *List) Close() { l.closed.Store(true) }

// Retire ends a list that no cell names as its home any more: its place may
// serve another list. Using the list afterwards is an error of the caller.
func (l *List) Retire() {
	l.closed.Store(true)
	listsMu.Lock()
	defer listsMu.Unlock()
	table := append([]*List(nil), *lists.Load()...)
	table[l.c.id] = nil
	lists.Store(&table)
	if l.own {
		// A list with a reaper of its own keeps its place: the reaper sleeps on
		// the waker that lies in it.
		return
	}
	l.retired.Store(true)
	if l.busy.Load() == 0 {
		l.vacate()
	}
}

// push puts a dead cell on its home list and wakes the reaper when it sleeps.
func push(c *Cell) {
	l := (*clist)(pointer(c.home))
	// Once the cell is on it, the list may be drained and retired.
	w := (*waker)(pointer(l.waker))
	for {
		head := l.head.Load()
		c.Next = Link(head)
		if l.head.CompareAndSwap(head, uintptr(unsafe.Pointer(c))) {
			break
		}
	}
	if w != nil {
		w.wake()
	}
}
