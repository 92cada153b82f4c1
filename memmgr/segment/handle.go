package segment

import (
	"errors"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Device memory that is the driver's is shared by handles, which the driver makes of an
// allocation in one process and opens in another.

// maxHandle bounds the bytes of a handle; those of drivers have some tens.
const maxHandle = 4096

// tryHandles finds out whether memory of this resource can be shared by handles: that
// one can be made. None is opened, since in the process that made it no driver has to.
func tryHandles(usm memmgr.Resource) error {
	if err := handleSupport(usm.Place()); err != nil {
		return err
	}
	r, err := newRegion(usm, devicePage, devicePage)
	if err != nil {
		return err
	}
	defer r.end()
	if _, err := handleOf(usm.Place(), r.base); err != nil {
		return cannot("making a handle of %d bytes of %v: %v", devicePage, usm.Place(), err)
	}
	return nil
}

// checkHandle refuses what makes no sense before the driver sees it.
func (a *Attachment) checkHandle(op string) error {
	switch {
	case len(a.Handle) == 0 || len(a.Handle) > maxHandle:
		return opError(op, memmgr.ErrRequest, "a handle of %d bytes; it has some tens, and at most %d", len(a.Handle), maxHandle)
	case a.Audience != PeersWrite:
		return opError(op, ErrAudience, "memory with a handle is for %q, and %q was told", PeersWrite, a.Audience)
	case a.Queue == nil || a.Queue.IsHost():
		return opError(op, memmgr.ErrRequest, "memory with a handle needs a Queue on the device that it lies on")
	case a.Kind != syclobj.USMDevice:
		return opError(op, memmgr.ErrRequest, "memory with a handle is of kind %v, and not %v", syclobj.USMDevice, a.Kind)
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
	if err := spent.take(op, c, bounds{mappings: a.MaxMappings}.filled()); err != nil {
		place.Release()
		return nil, err
	}
	base, err := openHandle(place, a.Handle, uintptr(a.Size))
	if err != nil {
		spent.giveBack(c)
		place.Release()
		if errors.Is(err, syclobj.ErrOverrun) {
			return nil, opError(op, ErrSize, "the memory of the handle is smaller than the %d bytes that were told, or has gaps: %w", a.Size, err)
		}
		return nil, failed(op, err)
	}
	return &Mapping{
		region:   region{base: base, size: uintptr(a.Size), opened: place},
		readOnly: a.ReadOnly, place: place,
	}, nil
}
