package syclobj

import "unsafe"

// Context is a SYCL context: a set of devices that share memory. The Runtime owns default contexts; the
// caller of NewContext or ContextFromRef owns and closes the others. Methods may be called from several
// goroutines.
type Context struct {
	h      handle
	table  *deviceTable
	root   int // index of a root device whose default context this is, or -1
	host   bool
	shared bool // belongs to the Runtime or to a place
}

// NewContext creates a context over devices of one platform. It is never a default context, even if the
// devices are the same. The caller closes it.
func (rt *Runtime) NewContext(devices ...*Device) (*Context, error) {
	const op = "Runtime.NewContext"
	if err := rt.needSYCL(op); err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, opErr(op, ErrArgument, "no devices")
	}
	refs := make([]ref, len(devices))
	for i, d := range devices {
		if d == nil || d.host {
			return nil, opErr(op, ErrArgument, "device %d is %v; only SYCL devices have contexts", i, d)
		}
		r, ok := d.h.use()
		if !ok {
			return nil, opErr(op, ErrClosed, "%s", d)
		}
		defer d.h.done()
		refs[i] = r
	}
	ref, code := contextNew(refs)
	if code != codeOK {
		return nil, opErr(op, code, "%s", filterList(devices))
	}
	return rt.table.newContext(ref), nil
}

// ContextFromRef copies a sycl::context*, such as a SyclContextRef capsule contains. The caller closes the
// copy and keeps the original.
func (rt *Runtime) ContextFromRef(ref unsafe.Pointer) (*Context, error) {
	const op = "Runtime.ContextFromRef"
	own, err := rt.copyForeign(op, sortContext, ref)
	if err != nil {
		return nil, err
	}
	return rt.table.newContext(own), nil
}

// newContext returns a Context that owns ref.
func (t *deviceTable) newContext(ref ref) *Context {
	c := &Context{table: t, root: -1}
	if same := t.contextOf(ref); same != nil {
		c.root = same.root
	}
	c.h.init(ref, sortContext)
	return c
}

// IsDefault reports whether this is the default context of a platform.
func (c *Context) IsDefault() bool { return c.host || c.root >= 0 }

// IsHost reports whether the context is that of the host backend.
func (c *Context) IsHost() bool { return c.host }

// Devices lists the devices of the context. The caller closes them, which does nothing for root devices.
func (c *Context) Devices() ([]*Device, error) {
	const op = "Context.Devices"
	if err := notNil(op, c); err != nil {
		return nil, err
	}
	if c.host {
		return []*Device{hostDevice}, nil
	}
	ref, ok := c.h.use()
	if !ok {
		return nil, &OpError{Op: op, Kind: ErrClosed}
	}
	defer c.h.done()
	if err := c.table.need(op); err != nil {
		return nil, err
	}
	refs, code := contextDevices(ref)
	if code != codeOK {
		return nil, opErr(op, code, "")
	}
	devices := make([]*Device, len(refs))
	for i, r := range refs {
		if root := c.table.rootOf(r); root != nil {
			deleteRef(sortDevice, r)
			devices[i] = root
			continue
		}
		devices[i] = c.table.newDevice(r, nil)
	}
	return devices, nil
}

// Equal reports whether both are the same context of the runtime.
func (c *Context) Equal(o *Context) bool {
	return c == o || (c != nil && o != nil && !c.host && !o.host && c.h.equal(&o.h))
}

// Ref returns the sycl::context*, borrowed; nil for the host's context and after Close.
func (c *Context) Ref() unsafe.Pointer { return c.h.get() }

// Close releases the context; it does nothing on default contexts. It may be called repeatedly.
func (c *Context) Close() error {
	if c != nil && !c.shared {
		c.h.close()
	}
	return nil
}
