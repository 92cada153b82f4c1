// Package usmarrow is where arrays of package usmarray and Apache Arrow meet: the same
// memory, seen by both.
//
//	usmarray               Arrow
//	shape [n]              an array of n values, or of n tensors of shape []
//	shape [n, a, b, …]     an array of n tensors of shape [a, b, …]
//
// A tensor array is the canonical extension type arrow.fixed_shape_tensor
// ([TensorType]), which arrow-go does not have and which importing this package
// registers; pyarrow reads it as FixedShapeTensorArray. Element types are those that
// Arrow stores as memory has them: int8 to int64, uint8 to uint64, float16, float32
// and float64. Arrow's booleans are bits, and it has no complex numbers and no narrow
// floating-point formats: view those as integers (Array.View in Python, a buffer with
// another type in Go).
//
// # Without a copy
//
// [ToArrow] shows memory that the host can read, in C order or with the axes of each row
// in another order, which Arrow calls a permutation. [FromArrow] shows a column without
// nulls. What either makes holds a reference of the memory until it is released itself,
// whatever the other side does meanwhile; neither guards the elements. Device memory is
// refused: copy it to host USM first (Array.ToDevice), as package flight does piece by
// piece. To exchange a column with C in the same process, pass the arrow.Array to package
// arrow/cdata of arrow-go.
//
// # Arrow's own buffers
//
// [Allocator] is Arrow's allocator on a resource, so that what Arrow allocates stands
// under the same limits and in the same profiles.
package usmarrow
