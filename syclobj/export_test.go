package syclobj

import "unsafe"

// Undescribed calls f while OpenCL does not find the program's device.
func (p *Program) Undescribed(f func()) {
	name := p.made.info.Name
	p.made.info.Name = "another device"
	f()
	p.made.info.Name = name
}

// LibraryError exposes the error of a library that cannot be used.
type LibraryError = libraryError

// Parent returns the device that this one was split from, nil for a root device.
func (d *Device) Parent() *Device { return d.parent }

// Ref returns the sycl::device*, borrowed; nil for the host device and after Close.
func (d *Device) Ref() unsafe.Pointer { return d.h.get() }

// Equal reports whether both are the same queue of the runtime.
func (q *Queue) Equal(o *Queue) bool {
	return q == o || (q != nil && o != nil && !q.host && !o.host && q.h.equal(&o.h))
}
