package transfer

import (
	"fmt"
	"slices"

	"github.com/usmbridge/usmbridge/usmarray"
)

// Elements says where the elements of an array lie in a file: densely, from a position on.
type Elements struct {
	At       int64 // position of the first byte
	DataType usmarray.DataType
	Shape    []int
	Fortran  bool // the first axis is the fastest
	Swap     int  // width in bytes of the units whose byte order is not this machine's; 0 for none
}

// Check makes sure that the shape is one that an array can have, and returns the bytes that
// the elements take.
func (e *Elements) Check() (int64, error) {
	l, err := usmarray.NewLayout(e.Shape, nil, 0)
	if err != nil {
		return 0, err
	}
	return e.DataType.ByteSize(int64(l.Size()), false)
}

// Rows is a range of the first axis, [Lo, Hi); or, with All, the whole array, whatever its
// number of axes.
type Rows struct {
	Lo, Hi int
	All    bool
}

// Whole is all elements.
var Whole = Rows{All: true}

// shape is the shape of the rows.
func (e *Elements) shape(r Rows) ([]int, error) {
	shape := slices.Clone(e.Shape)
	if r.All {
		return shape, nil
	}
	if len(shape) == 0 {
		return nil, fmt.Errorf("%w: a scalar has no rows; read it as a whole", usmarray.ErrIndex)
	}
	if r.Lo < 0 || r.Hi < r.Lo || r.Hi > shape[0] {
		return nil, fmt.Errorf("%w: rows [%d, %d) of %d; 0 <= lo <= hi <= %[4]d", usmarray.ErrIndex, r.Lo, r.Hi, shape[0])
	}
	shape[0] = r.Hi - r.Lo
	return shape, nil
}

// part is where the rows, which shape accepted, lie in the file. The sizes fit, because
// those of the whole array do.
func (e *Elements) part(r Rows) (Part, error) {
	p := Part{From: e.At, Count: 1, Swap: e.Swap}
	bits := int64(e.DataType.BitSize())
	for _, d := range e.Shape {
		if d == 0 {
			return Part{}, nil
		}
		bits *= int64(d)
	}
	if r.All || r.Lo == 0 && r.Hi == e.Shape[0] {
		p.Run = (bits + 7) / 8
		return p, nil
	}
	row, n := bits/int64(e.Shape[0]), int64(r.Hi-r.Lo)
	first := int64(r.Lo) * row
	if n == 0 {
		return Part{}, nil
	}
	if e.Fortran && len(e.Shape) > 1 {
		item := int64(e.DataType.Size())
		p.From += int64(r.Lo) * item
		p.Run, p.Stride, p.Count = n*item, int64(e.Shape[0])*item, row/(8*item)
		return p, nil
	}
	if first%8 != 0 {
		return Part{}, fmt.Errorf("%w: row %d begins within a byte of the packed %s elements; begin at a row that does not", usmarray.ErrLayout, r.Lo, e.DataType)
	}
	p.From += first / 8
	p.Run = (n*row + 7) / 8
	return p, nil
}
