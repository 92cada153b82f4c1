// Package usmarrow converts between arrays of package usmarray and Apache Arrow columns
// without a copy.
//
//	column, err := usmarrow.ToArrow(a)   // an arrow.Array on the memory of a
//	defer column.Release()
//	b, err := usmarrow.FromArrow(column) // an array on the memory of the column
//	defer b.Release()
//
// Shapes correspond in this way:
//
//	usmarray               Arrow
//	shape [n]              an array of n values, or of n tensors of shape []
//	shape [n, a, b, …]     an array of n tensors of shape [a, b, …]
//
// A tensor array is the canonical extension type arrow.fixed_shape_tensor
// ([TensorType]). arrow-go does not implement it; importing this package registers it.
// pyarrow reads it as FixedShapeTensorArray. The supported element types are those with
// the same memory layout in Arrow: int8 to int64, uint8 to uint64, float16, float32 and
// float64. Arrow stores booleans as bits, and has neither complex numbers nor floating-point
// formats of less than 16 bits. View such arrays as integers (Array.View in Python, a buffer
// with another type in Go).
//
// # Ownership
//
// [ToArrow] accepts host-readable memory with dense rows. The axes of a row may be stored in
// another order; the type then has a permutation. [FromArrow] accepts a column without
// nulls. Each result holds its own reference of the memory until it is released. Element
// access is not synchronized. ToArrow refuses device memory: copy it to host USM first
// (Array.ToDevice), as package flight does piece by piece. To exchange a column with C in the
// same process, pass the arrow.Array to package arrow/cdata of arrow-go.
package usmarrow
