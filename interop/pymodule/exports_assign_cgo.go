//go:build cgo && linux

package pymodule

/*
#include "create.h"
*/
import "C"

import (
	"unsafe"

	"go.uber.org/multierr"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// usmb_go_assign writes the elements of src, broadcast and converted, to a part of dst.
// It is complete on return: the memory of others may go then.
//
//export usmb_go_assign
func usmb_go_assign(dst *C.usmb_array, part *C.usmb_region, src *C.usmb_array, e *C.usmb_goerr) (r C.int) {
	defer guard(e, &r)
	from, err := borrowed(src)
	if err != nil {
		return report(e, err)
	}
	to, err := borrowedPart(dst, part)
	if err != nil {
		return report(e, err)
	}
	if err = to.ConvertFrom(from); err == nil {
		err = multierr.Append(to.Wait(), from.Wait())
	}
	return report(e, err)
}

// borrowedPart is a part of an Array of Python's, for the time of a call. Unlike a view
// of Python's it may begin inside a byte.
func borrowedPart(a *C.usmb_array, part *C.usmb_region) (*usmarray.Array, error) {
	whole, err := borrowed(a)
	if err != nil {
		return nil, err
	}
	layout, err := usmarray.NewLayout(ints(&part.shape[0], part.ndim), ints(&part.strides[0], part.ndim), whole.Layout().Offset()+int(part.offset))
	if err != nil {
		return nil, err
	}
	return usmarray.WrapBuffer(memmgr.FromCell(owner.CellOf(unsafe.Pointer(a.cell))), whole.DataType(), layout, optionsOf(a.flags)...)
}
