package usmarrow

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TypeOf returns the Arrow tensor type of an array and its number of rows. If the rows are dense
// but their axes are stored in another order, the type has a permutation. Errors: ErrType, and
// ErrLayout for scalars and for rows that are not dense.
func TypeOf(a *usmarray.Array) (*TensorType, int, error) {
	values, err := ArrowType(a.DataType())
	if err != nil {
		return nil, 0, err
	}
	shape, strides := a.Shape(), a.Strides()
	if len(shape) == 0 {
		return nil, 0, fmt.Errorf("%w: a scalar has no rows; reshape it to [1]", ErrLayout)
	}
	stored, permutation, err := storedOrder(shape, strides)
	if err != nil {
		return nil, 0, err
	}
	t, err := NewTensorType(values, stored, TensorOptions{Permutation: permutation})
	return t, shape[0], err
}

// storedOrder returns the shape of a row in storage order, and the permutation from the stored axes
// to the axes of the row; nil if the orders are equal.
func storedOrder(shape, strides []int) (stored, permutation []int, err error) {
	inner := len(shape) - 1
	order := make([]int, inner) // stored axis to axis
	for i := range order {
		order[i] = i
	}
	empty := slices.Contains(shape, 0)
	if !empty {
		slices.SortStableFunc(order, func(a, b int) int {
			if shape[a+1] == 1 || shape[b+1] == 1 { // the stride of an axis of length 1 has no meaning
				return 0
			}
			return cmp.Compare(strides[b+1], strides[a+1])
		})
	}
	dense := 1
	for _, axis := range slices.Backward(order) {
		if !empty && shape[axis+1] != 1 && strides[axis+1] != dense {
			return nil, nil, fmt.Errorf("%w: rows of shape %v with strides %v are not dense; Copy the array first", ErrLayout, shape[1:], strides[1:])
		}
		dense *= shape[axis+1]
	}
	if !empty && shape[0] != 1 && strides[0] != dense {
		return nil, nil, fmt.Errorf("%w: rows of %d elements lie %d apart; Copy the array first", ErrLayout, dense, strides[0])
	}
	stored = make([]int, inner)
	permutation = make([]int, inner)
	for to, axis := range order {
		stored[to] = shape[axis+1]
		permutation[axis] = to
	}
	if slices.IsSorted(permutation) {
		permutation = nil
	}
	return stored, permutation, nil
}

// ToArrow returns an array as a column with one tensor per row, without a copy. It waits for
// pending work on the array. The column holds a reference of the memory; the caller releases the
// column. While the column is alive, functions of this module that compute on the memory return when their
// work has ended; kernels that somebody launches are not waited for. Errors: those of TypeOf, and memmgr.ErrNotHostReadable.
func ToArrow(a *usmarray.Array) (*TensorArray, error) {
	t, rows, err := TypeOf(a)
	if err != nil {
		return nil, err
	}
	held := a.Retain()
	defer held.Release()
	data, err := elements(held)
	if err != nil {
		return nil, err
	}
	host := dlpack.CPU
	observed, err := held.DLPackWith(usmarray.ExportOptions{Device: &host})
	if err != nil {
		return nil, err
	}
	buffer := memory.NewBufferWithAllocator(data, holder{observed})
	defer buffer.Release()
	return NewTensorArray(t, rows, buffer), nil
}

// NewTensorArray returns a column of rows tensors whose values are in a buffer. The column retains the
// buffer; the caller releases the column.
func NewTensorArray(t *TensorType, rows int, buffer *memory.Buffer) *TensorArray {
	values := array.NewData(t.Values(), rows*t.Len(), []*memory.Buffer{nil, buffer}, nil, 0, 0)
	defer values.Release()
	list := array.NewData(t, rows, []*memory.Buffer{nil}, []arrow.ArrayData{values}, 0, 0)
	defer list.Release()
	return array.MakeFromData(list).(*TensorArray)
}

// elements returns the memory of a dense array in storage order.
func elements(a *usmarray.Array) ([]byte, error) {
	if _, err := a.Buffer().Bytes(); err != nil { // waits for pending work and checks that the host can read
		return nil, err
	}
	return unsafe.Slice((*byte)(a.Pointer()), a.NBytes()), nil
}

// holder is the Arrow allocator of a column made by ToArrow: freeing the column's buffer releases
// the tensor, which holds the memory and observes it.
type holder struct{ tensor dlpack.Tensor }

func (h holder) Allocate(n int) []byte             { return make([]byte, n) }
func (h holder) Reallocate(n int, _ []byte) []byte { return make([]byte, n) }
func (h holder) Free([]byte)                       { h.tensor.Release() }

// FromArrow returns a column as an array on the same memory. Tensors of shape [a, b, …] become
// [rows, a, b, …] with their axes in the permuted order, lists of fixed size [rows, size], values
// [rows]. The array is read-only, as Arrow memory is, and holds a reference of the column; the
// caller releases the array. Errors: ErrType, ErrNulls, and ErrMalformed for a column whose
// lengths, offsets, children and buffers are inconsistent, for example from a broken or hostile
// producer.
func FromArrow(column arrow.Array) (*usmarray.Array, error) {
	c, err := describe(column)
	if err != nil {
		return nil, err
	}
	data, err := c.bytes()
	if err != nil {
		return nil, err
	}
	var pinner runtime.Pinner
	p := unsafe.Pointer(unsafe.SliceData(data))
	if p != nil {
		pinner.Pin(p)
	}
	column.Retain()
	release := func() { pinner.Unpin(); column.Release() }
	buffer, err := memmgr.FromForeign(p, uint64(len(data)), memmgr.ForeignOptions{Release: release})
	if err != nil {
		release()
		return nil, err
	}
	l, err := usmarray.NewLayout(c.shape, nil, 0)
	if err == nil {
		var a *usmarray.Array
		if a, err = usmarray.FromBuffer(buffer, c.dtype, l, usmarray.ReadOnly()); err == nil {
			if c.tensor == nil {
				return a, nil
			}
			return c.tensor.InOrder(a)
		}
	}
	buffer.Release()
	return nil, err
}

// InOrder applies the permutation of the type to an array of the stored shape, without a copy. It
// takes over the reference of a; the caller owns the returned array.
func (t *TensorType) InOrder(a *usmarray.Array) (*usmarray.Array, error) {
	if t.permutation == nil {
		return a, nil
	}
	defer a.Release()
	axes := []int{0}
	for _, p := range t.permutation {
		axes = append(axes, p+1)
	}
	view, err := a.Transpose(axes...)
	if err != nil {
		return nil, err
	}
	return view.Retain(), nil
}
