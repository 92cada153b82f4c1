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

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TypeOf is the tensor type that an array has in Arrow, and the number of rows. An
// array whose rows are dense but whose axes lie in another order has a permutation.
// Errors: ErrType, and ErrLayout for scalars and for rows that are not dense.
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

// storedOrder is the shape of a row as its elements lie, and the permutation that
// makes the row's own of it, nil when they are the same.
func storedOrder(shape, strides []int) (stored, permutation []int, err error) {
	inner := len(shape) - 1
	order := make([]int, inner) // stored axis to axis
	for i := range order {
		order[i] = i
	}
	empty := slices.Contains(shape, 0)
	if !empty {
		slices.SortStableFunc(order, func(a, b int) int {
			if shape[a+1] == 1 || shape[b+1] == 1 { // its stride says nothing
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

// ToArrow shows an array as a column of tensors, one a row, in the same memory. The
// column holds a reference of the memory; the caller releases the column. It waits for
// pending work. Errors: those of TypeOf, and memmgr.ErrNotHostReadable.
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
	buffer := memory.NewBufferWithAllocator(data, &holder{array: held.Retain()})
	defer buffer.Release()
	return tensorColumn(t, rows, buffer), nil
}

// tensorColumn puts a column together; it retains the buffer.
func tensorColumn(t *TensorType, rows int, buffer *memory.Buffer) *TensorArray {
	n := int(t.Storage.(*arrow.FixedSizeListType).Len())
	values := array.NewData(t.Values(), rows*n, []*memory.Buffer{nil, buffer}, nil, 0, 0)
	defer values.Release()
	list := array.NewData(t, rows, []*memory.Buffer{nil}, []arrow.ArrayData{values}, 0, 0)
	defer list.Release()
	return array.MakeFromData(list).(*TensorArray)
}

// elements is the memory of a dense array, in the order in which it lies.
func elements(a *usmarray.Array) ([]byte, error) {
	if _, err := a.Buffer().Bytes(); err != nil { // waits, and knows who may read
		return nil, err
	}
	return unsafe.Slice((*byte)(a.Pointer()), a.NBytes()), nil
}

// holder is what Arrow returns the memory of an array to.
type holder struct{ array *usmarray.Array }

func (h *holder) Allocate(n int) []byte             { return make([]byte, n) }
func (h *holder) Reallocate(n int, _ []byte) []byte { return make([]byte, n) }
func (h *holder) Free([]byte)                       { h.array.Release() }

// FromArrow shows a column as an array in the same memory: tensors of shape [a, b, …]
// as [rows, a, b, …], with the axes in the order that their permutation says, lists of
// fixed size as [rows, size], values as [rows]. The array is read-only, as Arrow's
// memory is, and holds a reference of the column; the caller releases the array.
// Errors: ErrType, ErrNulls, and ErrMalformed for a column whose lengths, offsets,
// children and buffers don't fit each other, as one of a broken or hostile producer.
func FromArrow(column arrow.Array) (*usmarray.Array, error) {
	return FromArrowOn(column, nil)
}

// FromArrowOn is FromArrow of a column whose values may be memory of a device, such as
// the C device interface carries. place is asked once what memory the values are: the
// bytes [lo, hi), of which there is at least one. Its place becomes the array's; nil is
// plain host memory. Bitmaps are memory of the device too, so that a column that may have
// nulls is refused: ErrNulls.
func FromArrowOn(column arrow.Array, place func(lo, hi uintptr) (*syclobj.Place, error)) (*usmarray.Array, error) {
	c, err := describe(column, place == nil)
	if err != nil {
		return nil, err
	}
	data, err := c.bytes()
	if err != nil {
		return nil, err
	}
	var pinner runtime.Pinner
	o := memmgr.ForeignOptions{Release: func() { pinner.Unpin(); column.Release() }}
	p := unsafe.Pointer(unsafe.SliceData(data))
	if place != nil && p != nil {
		if o.Place, err = place(uintptr(p), uintptr(p)+uintptr(len(data))); err != nil {
			return nil, err
		}
		o.GivePlace = o.Place != nil
	} else if p != nil {
		pinner.Pin(p)
	}
	column.Retain()
	buffer, err := memmgr.FromForeign(p, uint64(len(data)), o)
	if err != nil {
		if o.GivePlace {
			o.Place.Release()
		}
		o.Release()
		return nil, err
	}
	l, err := usmarray.NewLayout(c.shape, nil, 0)
	if err == nil {
		var a *usmarray.Array
		if a, err = usmarray.FromBuffer(buffer, c.dtype, l, usmarray.ReadOnly()); err == nil {
			return inOrder(a, c.permutation)
		}
	}
	buffer.Release()
	return nil, err
}

// InOrder gives an array of the stored shape the order of axes that the type means, in
// the same memory. It takes over the array; the caller owns what it returns.
func (t *TensorType) InOrder(a *usmarray.Array) (*usmarray.Array, error) {
	return inOrder(a, t.permutation)
}

func inOrder(a *usmarray.Array, permutation []int) (*usmarray.Array, error) {
	if permutation == nil {
		return a, nil
	}
	defer a.Release()
	axes := []int{0}
	for _, p := range permutation {
		axes = append(axes, p+1)
	}
	view, err := a.Transpose(axes...)
	if err != nil {
		return nil, err
	}
	return view.Retain(), nil
}
