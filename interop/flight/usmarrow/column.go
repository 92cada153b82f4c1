package usmarrow

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/usmarray"
)

// columnLayout is what FromArrow needs to know. arrow-go checks neither lengths nor
// offsets of what it is given (array.NewData), and slices buffers by them: nothing of a
// column is used here before it is known to fit.
type columnLayout struct {
	dtype           usmarray.DataType
	shape           []int // as stored
	permutation     []int
	values          arrow.ArrayData
	width           int // of a value, in bytes
	first, elements int // of values, from the beginning of their buffer
}

func misfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// describe looks at a column; its bitmaps only where the host may read them.
func describe(column arrow.Array, readable bool) (c columnLayout, err error) {
	if column == nil || column.Data() == nil {
		return c, misfit("no column")
	}
	data := column.Data()
	t := data.DataType()
	if err := checkExtent(data); err != nil {
		return c, err
	}
	c.shape = []int{data.Len()}
	c.values, c.first, c.elements = data, data.Offset(), data.Len()
	tensor := false
	if e, ok := t.(arrow.ExtensionType); ok {
		if e.ExtensionName() != TensorName {
			return c, fmt.Errorf("%w: a column of %v", ErrType, t)
		}
		known, err := new(TensorType).Deserialize(e.StorageType(), e.Serialize())
		if err != nil {
			return c, err
		}
		c.shape = append(c.shape, known.(*TensorType).shape...)
		c.permutation = known.(*TensorType).permutation
		t, tensor = e.StorageType(), true
	}
	if err := noNulls(data, readable, c.first, c.elements, "rows"); err != nil {
		return c, err
	}
	if list, ok := t.(*arrow.FixedSizeListType); ok {
		n := int(list.Len())
		if !tensor {
			c.shape = append(c.shape, n)
		}
		if err := c.enter(data, list, readable); err != nil {
			return c, err
		}
		t = list.Elem()
	}
	if c.dtype, err = DataType(t); err == nil {
		c.width = t.(arrow.FixedWidthDataType).Bytes()
	}
	return c, err
}

// enter goes from the lists of a column to their elements.
func (c *columnLayout) enter(lists arrow.ArrayData, t *arrow.FixedSizeListType, readable bool) error {
	n := int(t.Len())
	if len(lists.Children()) != 1 || lists.Children()[0] == nil {
		return misfit("lists with %d children; they have one, their elements", len(lists.Children()))
	}
	child := lists.Children()[0]
	if !arrow.TypeEqual(child.DataType(), t.Elem()) {
		return misfit("lists of %v whose elements are %v", t.Elem(), child.DataType())
	}
	if err := checkExtent(child); err != nil {
		return err
	}
	if rows := c.first + c.elements; rows > child.Len()/n {
		return misfit("%d lists from %d on, of %d elements each, in %d elements", c.elements, c.first, n, child.Len())
	}
	c.values = child
	c.first = c.first*n + child.Offset()
	c.elements *= n
	return noNulls(child, readable, c.first, c.elements, "elements")
}

// checkExtent holds an array's length and offset against arithmetic.
func checkExtent(d arrow.ArrayData) error {
	if d.Len() < 0 || d.Offset() < 0 || d.Len() > math.MaxInt-d.Offset() {
		return misfit("%d elements from %d on", d.Len(), d.Offset())
	}
	return nil
}

// noNulls looks whether n elements, counted from the beginning of the buffers, are all
// there. A slice does not know how many nulls it has: then its bitmap is counted.
func noNulls(d arrow.ArrayData, readable bool, first, n int, what string) error {
	nulls := d.NullN()
	if nulls == 0 || n == 0 {
		return nil
	}
	if b := buffer(d, 0); b != nil && b.Len() > 0 {
		if !readable {
			return fmt.Errorf("%w: perhaps, among %d %s on a device, where their bitmap cannot be read; say that there are none", ErrNulls, n, what)
		}
		if end := first + n; end/8+min(end%8, 1) > b.Len() {
			return misfit("%d %s from %d on, and a bitmap of %d bytes that says which are null", n, what, first, b.Len())
		}
		nulls = n - bitutil.CountSetBits(b.Bytes(), first, n)
	}
	if nulls > 0 {
		return fmt.Errorf("%w: %d of %d %s; fill them first", ErrNulls, nulls, n, what)
	}
	return nil
}

func buffer(d arrow.ArrayData, i int) *memory.Buffer {
	if i >= len(d.Buffers()) {
		return nil
	}
	return d.Buffers()[i]
}

// bytes are those of the elements, nil when there are none. What a buffer has room for
// behind its length is not the column's.
func (c *columnLayout) bytes() ([]byte, error) {
	if c.elements == 0 {
		return nil, nil
	}
	var data []byte
	if b := buffer(c.values, 1); b != nil {
		data = b.Bytes()
	}
	if end := c.first + c.elements; end > len(data)/c.width {
		return nil, misfit("%d elements of %d bytes from %d on, in a buffer of %d bytes", c.elements, c.width, c.first, len(data))
	}
	from, to := c.first*c.width, (c.first+c.elements)*c.width
	return data[from:to:to], nil
}
