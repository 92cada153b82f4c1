package syclobj

import (
	"slices"
	"sync"
	"sync/atomic"
)

// deviceTable is the Go side of the table of devices that all Runtimes of a process share.
type deviceTable struct {
	platforms []*Platform
	roots     []*Device // in the runtime's order: the index is the DLPack device id
	fallback  *Device   // the choice of the default selector, or its replacement
	replaced  error     // why fallback is a replacement; nil if it is the choice
	closed    atomic.Bool
	filters   sync.Map // filter string seen before -> *Device
	seen      atomic.Int32
}

// process is the state of the process's SYCL library.
var process struct {
	sync.Mutex
	lib      *Library // set once the library is loaded
	runtimes int      // open Runtimes with SYCL
	// Set while runtimes > 0. Readers do not take the lock, which a concurrent Open holds
	// while it loads the library.
	table atomic.Pointer[deviceTable]
}

// shareTable opens the table of devices, or shares the open one.
func shareTable() (*deviceTable, error) {
	process.Lock()
	defer process.Unlock()
	t := process.table.Load()
	if t == nil {
		var err error
		if t, err = newTable(); err != nil {
			return nil, err
		}
		process.table.Store(t)
		if process.lib.CPUQueues == "" { // written once: users of an earlier Runtime may read it
			process.lib.CPUQueues = cpuQueues()
		}
	}
	process.runtimes++
	return t, nil
}

// unshareTable drops one share. The last one closes the table.
func unshareTable() {
	process.Lock()
	defer process.Unlock()
	process.runtimes--
	if process.runtimes > 0 {
		return
	}
	process.table.Swap(nil).close()
	tableClose()
}

// openTable returns the table of devices, or ErrClosed if no Runtime with SYCL is open.
func openTable(op string) (*deviceTable, error) {
	t := process.table.Load()
	if t == nil {
		return nil, opErr(op, ErrClosed, "no Runtime is open")
	}
	return t, nil
}

// need returns ErrClosed if the last Runtime was closed: devices can no longer be looked up.
func (t *deviceTable) need(op string) error {
	if t.closed.Load() {
		return opErr(op, ErrClosed, "the last Runtime was closed")
	}
	return nil
}

// remember caches the device of a filter string. Callers may pass any text, so the length and the number
// of strings are limited.
func (t *deviceTable) remember(filter string, d *Device) {
	if len(filter) <= 64 && t.seen.Load() < maxFilters {
		if _, known := t.filters.LoadOrStore(filter, d); !known {
			t.seen.Add(1)
		}
	}
}

const maxFilters = 256

func newTable() (*deviceTable, error) {
	if code := tableOpen(); code != codeOK {
		return nil, opErr("Open", code, "listing the devices")
	}
	t := &deviceTable{}
	for i := 0; ; i++ {
		row, ok := rootAt(i)
		if !ok {
			break
		}
		if err := t.addRoot(i, row); err != nil {
			t.close()
			tableClose()
			return nil, err
		}
	}
	if err := t.chooseDefault(); err != nil {
		t.close()
		tableClose()
		return nil, err
	}
	return t, nil
}

// addRoot takes its own references, so that the Go side does not depend on the C table.
func (t *deviceTable) addRoot(index int, row rootRow) error {
	d := &Device{table: t, root: index, filter: row.filter}
	d.h.init(copyRef(sortDevice, row.device), sortDevice)
	t.roots = append(t.roots, d)
	if d.h.ref == nil {
		return opErr("Open", ErrFailed, "copying device %d", index)
	}
	d.describe()
	if d.info.Name == "" || d.info.Type == TypeUnknown {
		return opErr("Open", ErrFailed, "asking %s for its name and type", d.filter)
	}
	d.ctx = &Context{table: t, root: index, shared: true}
	d.ctx.h.init(copyRef(sortContext, row.context), sortContext)
	if d.ctx.h.ref == nil {
		return opErr("Open", ErrFailed, "copying the default context of %s", d.filter)
	}
	if row.queue != nil {
		d.queue = &Queue{table: t, device: d, ctx: d.ctx, shared: true, properties: InOrder, kinds: d.kinds}
		d.queue.h.init(copyRef(sortQueue, row.queue), sortQueue)
		if d.queue.h.ref == nil {
			return opErr("Open", ErrFailed, "copying the default queue of %s", d.filter)
		}
		d.queue.h.final = d.queue.dropPlaces
		d.queue.hash = queueHash(d.queue.h.ref)
	}
	return t.addPlatform(d)
}

func (t *deviceTable) addPlatform(d *Device) error {
	ref := devicePlatform(d.h.ref)
	if ref == nil {
		return opErr("Open", ErrFailed, "asking %s for its platform", d.filter)
	}
	for _, p := range t.platforms {
		if equalRefs(sortPlatform, p.h.ref, ref) {
			deleteRef(sortPlatform, ref)
			p.devices = append(p.devices, d)
			d.platform = p
			return nil
		}
	}
	p := &Platform{info: describePlatform(ref), devices: []*Device{d}}
	p.h.init(ref, sortPlatform)
	t.platforms = append(t.platforms, p)
	d.platform = p
	return nil
}

// chooseDefault sets the default device: the choice of the default selector, or else the first device with
// a queue. It returns an error if there are devices and none has a queue, because the default queue would
// be the host's without a reason.
func (t *deviceTable) chooseDefault() error {
	if len(t.roots) == 0 {
		return nil
	}
	ref := deviceDefault()
	if ref == nil {
		return opErr("Open", ErrFailed, "selecting the default device of %s", filterList(t.roots))
	}
	chosen := t.rootOf(ref)
	deleteRef(sortDevice, ref)
	if chosen != nil && chosen.queue != nil {
		t.fallback = chosen
		return nil
	}
	if chosen != nil {
		t.replaced = opErr("Open", ErrFailed, "creating a queue on %s, the choice of the default selector", chosen)
	} else {
		t.replaced = opErr("Open", ErrFailed, "finding the choice of the default selector among %s", filterList(t.roots))
	}
	at := slices.IndexFunc(t.roots, func(d *Device) bool { return d.queue != nil })
	if at < 0 {
		return opErr("Open", ErrFailed, "creating a queue on %s", filterList(t.roots))
	}
	t.fallback = t.roots[at]
	return nil
}

// rootOf returns the root device of a reference, or nil.
func (t *deviceTable) rootOf(ref ref) *Device {
	for _, d := range t.roots {
		if d.h.is(ref) {
			return d
		}
	}
	return nil
}

// contextOf returns the default context of a reference, or nil.
func (t *deviceTable) contextOf(ref ref) *Context {
	for _, d := range t.roots {
		if d.ctx.h.is(ref) {
			return d.ctx
		}
	}
	return nil
}

func (t *deviceTable) close() {
	t.closed.Store(true)
	for _, d := range t.roots {
		if d.queue != nil {
			d.queue.h.close()
		}
		if d.ctx != nil {
			d.ctx.h.close()
		}
		d.h.close()
	}
	for _, p := range t.platforms {
		p.h.close()
	}
}
