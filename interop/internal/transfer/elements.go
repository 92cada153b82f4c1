package transfer

import (
	"fmt"
	"slices"

	"github.com/usmbridge/usmbridge/usmarray"
)

// Elements describes the elements of an array in a file. They are adjacent, from position At on.
type Elements struct {
	At       int64 // position of the first byte
	DataType usmarray.DataType
	Shape    []int
	Fortran  bool // Fortran order: the first axis varies fastest
	Swap     int  // width in bytes of units in foreign byte order; 0 if the order is native
}

// Check validates the shape and the element type. It returns the size of the elements in bytes.
func (e *Elements) Check() (int64, error) {
	l, err := usmarray.NewLayout(e.Shape, nil, 0)
	if err != nil {
		return 0, err
	}
	return e.DataType.ByteSize(int64(l.Size()), false)
}

// TypeError returns an error for an element type that an array or a format lacks.
func TypeError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", usmarray.ErrType, fmt.Errorf(format, args...))
}

// Rows is the range [Lo, Hi) of the first axis. If All is set, it is the whole array, with any number
// of axes.
type Rows struct {
	Lo, Hi int
	All    bool
}

// Whole selects all elements.
var Whole = Rows{All: true}

// shape validates the range and returns the shape of the rows.
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

// part returns the position of the rows in the file. The shape method must have accepted the rows. The
// sizes cannot overflow, because Check accepted the size of the whole array.
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
		return Part{}, fmt.Errorf("%w: row %d of packed %s elements does not begin at a byte boundary; choose a first row that does", usmarray.ErrLayout, r.Lo, e.DataType)
	}
	p.From += first / 8
	p.Run = (n*row + 7) / 8
	return p, nil
}
