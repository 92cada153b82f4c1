package usmarrow

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/usmarray"
)

// columnLayout is the validated layout of a column. arrow-go does not check the lengths and offsets
// in array data (array.NewData) before it slices buffers with them. Therefore every length and
// offset is validated here before it is used.
type columnLayout struct {
	dtype           usmarray.DataType
	shape           []int       // as stored
	tensor          *TensorType // nil for other columns
	values          arrow.ArrayData
	width           int // bytes of a value
	first, elements int // index of the first value in its buffer, and the number of values
}

// misfit returns an error that matches ErrMalformed.
func misfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// describe validates a column and returns its layout.
func describe(column arrow.Array) (c columnLayout, err error) {
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
	if e, ok := t.(arrow.ExtensionType); ok {
		if e.ExtensionName() != TensorName {
			return c, fmt.Errorf("%w: a column of %v", ErrType, t)
		}
		known, err := new(TensorType).Deserialize(e.StorageType(), e.Serialize())
		if err != nil {
			return c, err
		}
		c.tensor = known.(*TensorType)
		c.shape = append(c.shape, c.tensor.shape...)
		t = e.StorageType()
	}
	if err := noNulls(data, c.first, c.elements, "rows"); err != nil {
		return c, err
	}
	if list, ok := t.(*arrow.FixedSizeListType); ok {
		n := int(list.Len())
		if c.tensor == nil {
			c.shape = append(c.shape, n)
		}
		if err := c.enter(data, list); err != nil {
			return c, err
		}
		t = list.Elem()
	}
	if c.dtype, err = DataType(t); err == nil {
		c.width = t.(arrow.FixedWidthDataType).Bytes()
	}
	return c, err
}

// enter replaces the lists of a column by their elements.
func (c *columnLayout) enter(lists arrow.ArrayData, t *arrow.FixedSizeListType) error {
	n := int(t.Len())
	if len(lists.Children()) != 1 || lists.Children()[0] == nil {
		return misfit("lists with %d children, want 1", len(lists.Children()))
	}
	child := lists.Children()[0]
	if !arrow.TypeEqual(child.DataType(), t.Elem()) {
		return misfit("lists of %v with elements of type %v", t.Elem(), child.DataType())
	}
	if err := checkExtent(child); err != nil {
		return err
	}
	if rows := c.first + c.elements; rows > child.Len()/n {
		return misfit("%d lists at offset %d, of %d elements each, exceed their %d elements", c.elements, c.first, n, child.Len())
	}
	c.values = child
	c.first = c.first*n + child.Offset()
	c.elements *= n
	return noNulls(child, c.first, c.elements, "elements")
}

// checkExtent checks that the length and offset of an array are not negative and that their sum
// does not overflow.
func checkExtent(d arrow.ArrayData) error {
	if d.Len() < 0 || d.Offset() < 0 || d.Len() > math.MaxInt-d.Offset() {
		return misfit("invalid length %d or offset %d", d.Len(), d.Offset())
	}
	return nil
}

// noNulls returns an error if any of the n elements from index first of the buffers is null. The
// null count of a slice is unknown (-1); in this case it counts the bits of the bitmap.
func noNulls(d arrow.ArrayData, first, n int, kind string) error {
	nulls := d.NullN()
	if nulls == 0 || n == 0 {
		return nil
	}
	if b := buffer(d, 0); b != nil && b.Len() > 0 {
		if end := first + n; end/8+min(end%8, 1) > b.Len() {
			return misfit("%d %s at offset %d exceed their validity bitmap of %d bytes", n, kind, first, b.Len())
		}
		nulls = n - bitutil.CountSetBits(b.Bytes(), first, n)
	}
	if nulls > 0 {
		return fmt.Errorf("%w: %d of %d %s are null; replace the nulls first", ErrNulls, nulls, n, kind)
	}
	return nil
}

// buffer returns the buffer with index i, or nil.
func buffer(d arrow.ArrayData, i int) *memory.Buffer {
	if i >= len(d.Buffers()) {
		return nil
	}
	return d.Buffers()[i]
}

// bytes returns the bytes of the elements, nil if there are none. The unused capacity of the buffer
// after its length is not part of the column.
func (c *columnLayout) bytes() ([]byte, error) {
	if c.elements == 0 {
		return nil, nil
	}
	var data []byte
	if b := buffer(c.values, 1); b != nil {
		data = b.Bytes()
	}
	if end := c.first + c.elements; end > len(data)/c.width {
		return nil, misfit("%d elements of %d bytes at offset %d exceed their buffer of %d bytes", c.elements, c.width, c.first, len(data))
	}
	from, to := c.first*c.width, (c.first+c.elements)*c.width
	return data[from:to:to], nil
}
