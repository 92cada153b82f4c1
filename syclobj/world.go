package syclobj

import (
	"sync"
)

// world is the table of devices that the Runtimes of a process share.
type world struct {
	platforms []*Platform
	roots     []*Device // in the runtime's order: the index is the DLPack device id
	fallback  *Device   // what the default selector picks
	filters   sync.Map  // filter string seen before -> *Device
}

// process is the state of the one SYCL library of the process.
var process struct {
	sync.Mutex
	lib      *Library // set once the library is loaded
	runtimes int      // open Runtimes with SYCL
	world    *world   // while runtimes > 0
}

// enterWorld opens the table of devices, or shares the open one.
func enterWorld() (*world, error) {
	process.Lock()
	defer process.Unlock()
	if process.world == nil {
		w, err := newWorld()
		if err != nil {
			return nil, err
		}
		process.world = w
	}
	process.runtimes++
	return process.world, nil
}

// leaveWorld gives one share back; the last one closes the table.
func leaveWorld() {
	process.Lock()
	defer process.Unlock()
	process.runtimes--
	if process.runtimes > 0 {
		return
	}
	process.world.close()
	process.world = nil
	worldClose()
}

// currentWorld is nil while no Runtime with SYCL is open.
func currentWorld() *world {
	process.Lock()
	defer process.Unlock()
	return process.world
}

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
		if equalRefs(sortDevice, d.h.ref, ref) {
			return d
		}
	}
	return nil
}

// contextOf finds the default context that a reference is, nil if none.
func (w *world) contextOf(ref ref) *Context {
	for _, d := range w.roots {
		if equalRefs(sortContext, d.ctx.h.ref, ref) {
			return d.ctx
		}
	}
	return nil
}

func (w *world) close() {
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
