package segment

import (
	"errors"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Device memory of a driver is shared by handles. The driver makes a handle of an allocation in one
// process and opens it in another.

// maxHandle is the largest size of a handle, in bytes. Handles of drivers have some tens.
const maxHandle = 4096

// tryHandles tests whether the driver can make a handle of memory of this resource. It does not open
// the handle: drivers need not support that in the process that made it.
func tryHandles(usm memmgr.Resource) error {
	if err := handleSupport(usm.Place()); err != nil {
		return err
	}
	r, err := newHandleRegion(usm, devicePage, devicePage)
	if err != nil {
		return err
	}
	defer r.end()
	if _, err := handleOf(usm.Place(), r.base); err != nil {
		return cannot("making a handle of %d bytes of %v: %v", devicePage, usm.Place(), err)
	}
	return nil
}

// newHandleRegion allocates device memory that is shared by a handle. A handle is that of the driver's whole
// block, so the memory must be a block of its own: a padded one begins and ends inside pages of the device,
// and a peer could access other allocations in these pages.
func newHandleRegion(usm memmgr.Resource, size, align uintptr) (region, error) {
	r, err := newRegion(usm, size, align)
	if err == nil && isPadded(r.base) {
		r.end()
		return region{}, cannot("the driver does not align %d bytes of %v to %d bytes, so peers could access other memory",
			size, usm.Place(), align)
	}
	return r, err
}

// checkHandle validates the fields before they are passed to the driver.
func (a *Attachment) checkHandle(op string) error {
	switch {
	case len(a.Handle) == 0 || len(a.Handle) > maxHandle:
		return opError(op, memmgr.ErrRequest, "invalid handle of %d bytes (want 1 to %d)", len(a.Handle), maxHandle)
	case a.Audience != PeersWrite:
		return opError(op, ErrAudience, "memory with a handle has one audience (got %q, want %q)", a.Audience, PeersWrite)
	case a.Queue == nil || a.Queue.IsHost():
		return opError(op, memmgr.ErrRequest, "set Queue to a queue on the device of the handle's memory")
	case a.Kind != syclobj.USMDevice:
		return opError(op, memmgr.ErrRequest, "memory with a handle has one kind (got %v, want %v)", a.Kind, syclobj.USMDevice)
	}
	return nil
}

// open has the driver map the memory of a handle.
func (a *Attachment) open(op string) (*Mapping, error) {
	place, err := a.Queue.Place(a.Kind)
	if err != nil {
		return nil, &OpError{Op: op, Err: err}
	}
	if err := handleSupport(place); err != nil {
		place.Release()
		return nil, failed(op, err)
	}
	c := cost{mappings: 1}
	if err := spent.take(op, c); err != nil {
		place.Release()
		return nil, err
	}
	base, err := openHandle(place, a.Handle, uintptr(a.Size))
	if err != nil {
		spent.giveBack(c)
		place.Release()
		if errors.Is(err, syclobj.ErrOverrun) {
			return nil, opError(op, ErrSize, "the memory of the handle has fewer than %d bytes, or gaps: %w", a.Size, err)
		}
		return nil, failed(op, err)
	}
	return &Mapping{
		region:   region{base: base, size: uintptr(a.Size), opened: place},
		readOnly: a.ReadOnly, place: place,
	}, nil
}
