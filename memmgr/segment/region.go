package segment

import (
	"fmt"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/shared"
	"github.com/usmbridge/usmbridge/syclobj"
)

// region is addresses of this process that a memory file is laid over: a range of its
// own, or that of an allocation of USM. Or it is device memory: an allocation as it is, or
// one of another process that a driver opened.
type region struct {
	base, size uintptr
	usm        memmgr.Resource // nil: a range of its own
	block      memmgr.Block    // of usm
	covered    bool            // a file was laid over it, or may have been
	offset     uint64          // of the region in the file, in whole pages
	opened     *syclobj.Place  // the driver opened it there; nil otherwise
}

// mappingsOf is how many mappings a region adds to the process at most: one in a range
// of its own; in USM the allocation that it splits comes to lie on both sides.
func mappingsOf(usm memmgr.Resource) int {
	if usm == nil {
		return 1
	}
	return 2
}

// newRegion takes whole pages of addresses, aligned to at least a page.
func newRegion(usm memmgr.Resource, size, align uintptr) (region, error) {
	if usm == nil {
		base, err := reserve(size, align)
		return region{base: base, size: size}, err
	}
	b, err := usm.Allocate(memmgr.Request{Size: size, Align: align, Tag: "shared segment"})
	if err != nil {
		return region{}, err
	}
	return region{base: b.Address, size: size, usm: usm, block: b}, nil
}

// cover maps the file over the region, shared.
func (r *region) cover(fd int, readOnly bool) error {
	r.covered = true
	return mapOver(r.base, r.size, fd, r.offset, readOnly)
}

// end gives the addresses back, and reports whether it could. USM is freed only with
// pages of its own under it again, as the runtime expects them: where those cannot be
// had it is left allocated, with what lies in it, and so it is at the end of the process
// (diag.StopBackground).
func (r *region) end() bool {
	if r.opened != nil {
		if err := closeHandle(r.opened, r.base); err != nil {
			diag.Found(fmt.Sprintf("%d bytes of %v at %#x stay open: %v", r.size, r.opened, r.base, err), "")
			return false
		}
		return true
	}
	if r.usm == nil {
		if err := unmap(r.base, r.size); err != nil {
			diag.Found(fmt.Sprintf("%d bytes of shared memory at %#x stay mapped: %v", r.size, r.base, err), "")
			return false
		}
		return true
	}
	return shared.UnlessEnding(r.free)
}

// free gives the USM back with pages of its own under it.
func (r *region) free() bool {
	if err := r.uncover(); err != nil {
		diag.Found(fmt.Sprintf("%d bytes of %v at %#x are lost: they were shared, and pages of their own could not be put back, "+
			"without which they must not be freed: %v", r.size, r.usm.Place(), r.base, err), "")
		return false
	}
	r.usm.Free(r.block)
	return true
}

// uncover puts pages of the process's own back under USM.
func (r *region) uncover() error {
	if !r.covered {
		return nil
	}
	return mapAnonymous(r.base, r.size)
}
