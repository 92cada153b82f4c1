package segment

import (
	"fmt"

	"github.com/usmbridge/usmbridge/internal/diag"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/shared"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/syclobj"
)

// region is a range of addresses. A memory file is mapped over it; the range itself is reserved, or is
// an allocation of USM. With handles there is no file: the region is an allocation of device memory,
// or memory of another process that the driver opened.
type region struct {
	base, size uintptr
	usm        memmgr.Resource // nil for a reserved range
	block      memmgr.Block    // allocated from usm
	covered    bool            // mapping a file over it was attempted
	offset     uint64          // of the region in the file, in bytes; a multiple of the page size
	opened     *syclobj.Place  // place of memory that the driver opened; nil otherwise
}

// mappingsOf returns the largest number of mappings that a region adds to the process: one for a
// reserved range, and two for USM, because the file splits the runtime's mapping into two parts.
func mappingsOf(usm memmgr.Resource) int {
	if usm == nil {
		return 1
	}
	return 2
}

// newRegion reserves or allocates a region. size is a multiple of the page size, and align at least
// a page.
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

// end releases the addresses and reports whether it succeeded. USM is freed only after private pages
// are mapped under it again, as the runtime expects. If they cannot be mapped, the USM stays
// allocated. It also stays allocated once the process is ending (diag.StopBackground).
func (r *region) end() bool {
	if r.opened != nil {
		if err := closeHandle(r.opened, r.base); err != nil {
			diag.Found(fmt.Sprintf("%d bytes of %v at %#x stay open: %v", r.size, r.opened, r.base, err), "")
			return false
		}
		return true
	}
	if r.usm == nil {
		if err := sysmem.Unmap(r.base, r.size); err != nil {
			diag.Found(fmt.Sprintf("%d bytes of shared memory at %#x stay mapped: %v", r.size, r.base, err), "")
			return false
		}
		return true
	}
	return shared.UnlessEnding(r.free)
}

// free maps private pages under the USM and frees it. It reports whether it succeeded.
func (r *region) free() bool {
	if r.covered {
		if err := mapAnonymous(r.base, r.size); err != nil {
			diag.Found(fmt.Sprintf("%d bytes of %v at %#x are lost: they were shared, and cannot be freed without "+
				"private pages under them: %v", r.size, r.usm.Place(), r.base, err), "")
			return false
		}
	}
	r.usm.Free(r.block)
	return true
}
