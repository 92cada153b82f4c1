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
	here       uintptr // used only by C
	_          [10]uint64
}

// List is a drop list: any thread pushes dead cells, and a drain takes the whole chain. The cells of a
// list refer to it as their home, so it must exist until the last of them is dead ([List.Retire]).
type List struct {
	c      *clist
	drain  func(*Cell)
	batch  func(*List)
	own    bool
	closed atomic.Bool
	busy   atomic.Int32
	// retired is set by Retire. The last drain that is in progress recycles the list's place.
	retired atomic.Bool
	reap    *reaper
}

// Option adjusts a list of [NewList].
type Option func(*List)

// OwnGoroutine gives the list its own reaper. Use it if the drain function can block for long. Cells
// that Go releases are pushed on such a list too, so that releasing them never blocks.
func OwnGoroutine() Option { return func(l *List) { l.own = true } }

// Batch replaces the drain function of single cells. f is called when the list has cells, and takes
// them ([List.Take], or usmb_list_run in C).
func Batch(f func(*List)) Option { return func(l *List) { l.batch = f } }

// lists maps usmb_list.id to lists; entry 0 is nil. The table is copied on write, because every release
// reads it. listsMu serializes writers.
var (
	lists   atomic.Pointer[[]*List]
	listsMu sync.Mutex
)

// NewList makes a list. drain disposes of one dead cell and recycles it ([Recycle]), or keeps it for
// [Cell.Renew]. It runs in the goroutine that releases the cell, in one that calls Drain, or in a
// reaper, so it must be safe for concurrent use. If drain is nil, cells are only recycled. drain is
// not called for cells with a C function: the function runs and the cell is recycled.
//
// NewList panics if there is no memory for a cell.
func NewList(drain func(*Cell), options ...Option) *List {
	c := rawCell()
	if c == nil {
		panic(ErrNoMemory)
	}
	c.clear()
	c.Retire()
	l := &List{c: (*clist)(unsafe.Pointer(c)), drain: drain}
	// The fields that clear has not set. The cell's link stays: popFree may still read it.
	l.c.own.fd = -1
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

// listOf returns the List of a usmb_list, nil for address 0 and for lists made by C.
func listOf(address uintptr) *List {
	if address == 0 {
		return nil
	}
	return (*lists.Load())[(*clist)(Pointer(address)).id]
}

// empty is [Empty] for the list.
func (l *List) empty() bool { return Empty(&l.c.head) }

// Head returns the head of the list. Callers poll it with [Empty] without following further pointers.
func (l *List) Head() *atomic.Uintptr { return &l.c.head }

// Empty reports whether the list with this head has no cells. It may be called after [List.Retire], when another cell
// has the place of the list: the result then has no effect, because Drain does nothing.
func Empty(head *atomic.Uintptr) bool { return lateLoad(head) == 0 }

// Take removes and returns all cells of the list, oldest first, linked by Cell.Next, or nil. The caller
// owns them.
func (l *List) Take() *Cell {
	c := (*Cell)(Pointer(l.c.head.Swap(0)))
	if c != nil {
		afterC()
	}
	var oldest *Cell
	for c != nil {
		next := c.Next.Cell()
		c.Next = LinkTo(oldest)
		oldest, c = c, next
	}
	return oldest
}

// Drain disposes of all cells of the list in the caller's goroutine. Several goroutines may drain a list
// at the same time. After Close it does nothing.
func (l *List) Drain() {
	if l.empty() || l.closed.Load() {
		return
	}
	// Increment busy and then check closed again: Retire does not recycle the place while busy is not
	// 0.
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

// leave ends a drain. The last one recycles the place of a retired list.
func (l *List) leave() {
	if l.busy.Add(-1) == 0 {
		l.vacate()
	}
}

// vacate recycles the place of a retired list, once.
func (l *List) vacate() {
	if l.retired.CompareAndSwap(true, false) {
		Recycle((*Cell)(unsafe.Pointer(l.c)))
	}
}

// dispose finishes a chain: cells with a C function in one call of C, the rest by drain.
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

// Sync drains the list and waits for drains in progress. When it returns, all cells that were pushed
// before the call are disposed of. It must not be called from a drain function.
func (l *List) Sync() {
	l.Drain()
	for l.busy.Load() != 0 || (!l.empty() && !l.closed.Load()) {
		runtime.Gosched()
		l.Drain()
	}
}

// Close disables draining for good. Cells that are pushed later stay on the list and are leaked on
// purpose. Use it when the drain function can no longer run, as during the shutdown of an
// interpreter. It does not wait for drains in progress.
func (l *List) Close() { l.closed.Store(true) }

// Retire releases a list that is no longer the home of any cell. The list must not be used afterwards.
func (l *List) Retire() {
	l.closed.Store(true)
	listsMu.Lock()
	defer listsMu.Unlock()
	table := append([]*List(nil), *lists.Load()...)
	table[l.c.id] = nil
	lists.Store(&table)
	if l.own {
		// The place of the list contains the waker that its own reaper sleeps on, so keep it.
		return
	}
	l.retired.Store(true)
	if l.busy.Load() == 0 {
		l.vacate()
	}
}

// push puts a dead cell on its home list and wakes the reaper if it sleeps.
func push(c *Cell) {
	l := (*clist)(Pointer(c.home))
	// Read waker before the push: after it, the list may be drained and retired.
	w := (*waker)(Pointer(l.waker))
	for {
		head := l.head.Load()
		c.Next = Link(head)
		beforeC()
		if l.head.CompareAndSwap(head, uintptr(unsafe.Pointer(c))) {
			break
		}
	}
	if w != nil {
		w.wake()
	}
}
