package usmarrow_test

import (
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// An array becomes an Arrow column and an array again, on the same memory. Each owns a reference.
func Example() {
	a, err := usmarray.FromSlice(memmgr.Host(), []int32{1, 2, 3, 4, 5, 6}, []int{3, 2})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release()
	column, err := usmarrow.ToArrow(a)
	if err != nil {
		log.Fatal(err)
	}
	defer column.Release()
	fmt.Println(column.DataType(), column.Len())

	b, err := usmarrow.FromArrow(column)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release()
	fmt.Println(b.Shape(), b.Pointer() == a.Pointer())
	// Output:
	// extension<arrow.fixed_shape_tensor[value_type=int32, shape=[2]]> 3
	// [3 2] true
}
