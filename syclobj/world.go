package syclobj

import (
	"sync"
	"sync/atomic"
)

// world is the table of devices that the Runtimes of a process share.
type world struct {
	platforms []*Platform
	roots     []*Device // in the runtime's order: the index is the DLPack device id
	fallback  *Device   // what the default selector picks
	closed    atomic.Bool
	filters   sync.Map // filter string seen before -> *Device
	seen      atomic.Int32
}

// process is the state of the one SYCL library of the process.
var process struct {
	sync.Mutex
	lib      *Library // set once the library is loaded
	runtimes int      // open Runtimes with SYCL
	// Set while runtimes > 0. Read without the lock, which an Open that asks an
	// interpreter for its search path holds for long.
	world atomic.Pointer[world]
}

// enterWorld opens the table of devices, or shares the open one.
func enterWorld() (*world, error) {
	process.Lock()
	defer process.Unlock()
	w := process.world.Load()
	if w == nil {
		var err error
		if w, err = newWorld(); err != nil {
			return nil, err
		}
		process.world.Store(w)
	}
	process.runtimes++
	return w, nil
}

// leaveWorld gives one share back; the last one closes the table.
func leaveWorld() {
	process.Lock()
	defer process.Unlock()
	process.runtimes--
	if process.runtimes > 0 {
		return
	}
	process.world.Swap(nil).close()
	worldClose()
}

// openWorld is the table of devices, ErrClosed while no Runtime with SYCL is open.
func openWorld(op string) (*world, error) {
	w := process.world.Load()
	if w == nil {
		return nil, opErr(op, ErrClosed, "no Runtime is open")
	}
	return w, nil
}

// need is an error once the last Runtime was closed: what is found through the
// table of devices cannot be told any more.
func (w *world) need(op string) error {
	if w.closed.Load() {
		return opErr(op, ErrClosed, "the last Runtime was closed")
	}
	return nil
}

// remember keeps what a filter string names. Callers may pass any text, so only
// short strings are kept, and not many.
func (w *world) remember(filter string, d *Device) {
	if len(filter) <= 64 && w.seen.Load() < maxFilters {
		if _, known := w.filters.LoadOrStore(filter, d); !known {
			w.seen.Add(1)
		}
	}
}

const maxFilters = 256

func newWorld() (*world, error) {
	if code := worldOpen(); code != codeOK {
		return nil, opErr("Open", code, "listing the devices")
	}
	w := &world{}
	for i := 0; ; i++ {
		row, ok := rootAt(i)
		if !ok {
			break
		}
		if err := w.addRoot(i, row); err != nil {
			w.close()
			worldClose()
			return nil, err
		}
	}
	w.chooseDefault()
	return w, nil
}

// addRoot takes its own references, so that what the Go side holds does not
// depend on the C table.
func (w *world) addRoot(index int, row rootRow) error {
	d := &Device{world: w, root: index, filter: row.filter}
	d.h.init(copyRef(sortDevice, row.device), sortDevice)
	w.roots = append(w.roots, d)
	if d.h.ref == nil {
		return opErr("Open", ErrFailed, "copying device %d", index)
	}
	d.facts = describeDevice(d.h.ref)
	d.ctx = &Context{world: w, root: index, shared: true}
	d.ctx.h.init(copyRef(sortContext, row.context), sortContext)
	if d.ctx.h.ref == nil {
		return opErr("Open", ErrFailed, "copying the default context of %s", d.filter)
	}
	d.ctx.hash = contextHash(d.ctx.h.ref)
	if row.queue != nil {
		d.queue = &Queue{world: w, device: d, ctx: d.ctx, shared: true, inOrder: true, kinds: d.facts.kinds}
		d.queue.h.init(copyRef(sortQueue, row.queue), sortQueue)
		if d.queue.h.ref == nil {
			return opErr("Open", ErrFailed, "copying the default queue of %s", d.filter)
		}
		d.queue.h.final = d.queue.dropPlaces
		d.queue.hash = queueHash(d.queue.h.ref)
	}
	return w.addPlatform(d)
}

func (w *world) addPlatform(d *Device) error {
	ref := devicePlatform(d.h.ref)
	if ref == nil {
		return opErr("Open", ErrFailed, "asking %s for its platform", d.filter)
	}
	for _, p := range w.platforms {
		if equalRefs(sortPlatform, p.h.ref, ref) {
			deleteRef(sortPlatform, ref)
			p.devices = append(p.devices, d)
			d.platform = p
			return nil
		}
	}
	p := &Platform{facts: describePlatform(ref), devices: []*Device{d}}
	p.h.init(ref, sortPlatform)
	w.platforms = append(w.platforms, p)
	d.platform = p
	return nil
}

func (w *world) chooseDefault() {
	if ref := deviceDefault(); ref != nil {
		w.fallback = w.rootOf(ref)
		deleteRef(sortDevice, ref)
	}
	if w.fallback != nil && w.fallback.queue != nil {
		return
	}
	for _, d := range w.roots {
		if d.queue != nil {
			w.fallback = d
			return
		}
	}
}

// rootOf finds the root device that a reference is, nil if none.
func (w *world) rootOf(ref ref) *Device {
	for _, d := range w.roots {
		if d.h.is(ref) {
			return d
		}
	}
	return nil
}

// contextOf finds the default context that a reference is, nil if none.
func (w *world) contextOf(ref ref) *Context {
	for _, d := range w.roots {
		if d.ctx.h.is(ref) {
			return d.ctx
		}
	}
	return nil
}

func (w *world) close() {
	w.closed.Store(true)
	for _, d := range w.roots {
		if d.queue != nil {
			d.queue.h.close()
		}
		if d.ctx != nil {
			d.ctx.h.close()
		}
		d.h.close()
	}
	for _, p := range w.platforms {
		p.h.close()
	}
}
