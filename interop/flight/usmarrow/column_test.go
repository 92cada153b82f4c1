package usmarrow

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/usmarray"
)

// bare is a column with arbitrary, possibly inconsistent data. The constructors of arrow-go's own
// array types already check some of the data.
type bare struct {
	arrow.Array
	data arrow.ArrayData
}

func (b *bare) Data() arrow.ArrayData          { return b.data }
func (b *bare) DataType() arrow.DataType       { return b.data.DataType() }
func (b *bare) Len() int                       { return b.data.Len() }
func (b *bare) Retain()                        { b.data.Retain() }
func (b *bare) Release()                       { b.data.Release() }
func bareColumn(d arrow.ArrayData) arrow.Array { return &bare{data: d} }

func bytesOf(n int) *memory.Buffer { return memory.NewBufferBytes(make([]byte, n)) }

// FromArrow validates the lengths and offsets of a column before it uses them: each of these
// columns returns an error, without a panic or an access beyond the buffer.
func TestInconsistentColumns(t *testing.T) {
	i4, f4 := arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Float32
	list := arrow.FixedSizeListOf(3, i4)
	tensor := testenv.Must(NewTensorType(i4, []int{3}, TensorOptions{}))(t)
	values := func(typ arrow.DataType, n, offset, bytes int) arrow.ArrayData {
		return array.NewData(typ, n, []*memory.Buffer{nil, bytesOf(bytes)}, nil, 0, offset)
	}
	roomy := memory.NewBufferBytes(make([]byte, 4, 4096))
	lists := func(typ arrow.DataType, n, offset int, children ...arrow.ArrayData) arrow.ArrayData {
		return array.NewData(typ, n, []*memory.Buffer{nil}, children, 0, offset)
	}
	masked := func(typ arrow.DataType, n, offset, nulls, bitmap int, children ...arrow.ArrayData) arrow.ArrayData {
		return array.NewData(typ, n, []*memory.Buffer{bytesOf(bitmap), bytesOf(4 * max(n, 1))}, children, nulls, offset)
	}
	for name, d := range map[string]arrow.ArrayData{
		"buffer too short":            values(i4, 10, 0, 39),
		"offset beyond the buffer":    values(i4, 1, 100, 40),
		"capacity beyond length":      array.NewData(i4, 10, []*memory.Buffer{nil, roomy}, nil, 0, 0),
		"negative length":             values(i4, -1, 0, 40),
		"negative offset":             values(i4, 1, -1, 40),
		"length and offset overflow":  values(i4, math.MaxInt, math.MaxInt, 40),
		"bytes overflow":              values(i4, math.MaxInt/2, 0, 40),
		"no values":                   array.NewData(i4, 1, []*memory.Buffer{nil, nil}, nil, 0, 0),
		"one buffer":                  array.NewData(i4, 1, []*memory.Buffer{nil}, nil, 0, 0),
		"no buffers":                  array.NewData(i4, 1, nil, nil, 0, 0),
		"list without a child":        lists(list, 1, 0),
		"list with no child":          lists(list, 1, 0, nil),
		"list with two children":      lists(list, 1, 0, values(i4, 3, 0, 12), values(i4, 3, 0, 12)),
		"list of other elements":      lists(list, 1, 0, values(f4, 3, 0, 12)),
		"list longer than its child":  lists(list, 2, 0, values(i4, 5, 0, 20)),
		"list offset beyond child":    lists(list, 1, 2, values(i4, 6, 0, 24)),
		"child's buffer too short":    lists(list, 2, 0, values(i4, 6, 0, 20)),
		"child's offset":              lists(list, 2, 0, values(i4, 6, 1, 24)),
		"child's negative length":     lists(list, 0, 0, values(i4, -6, 0, 24)),
		"list lengths overflow":       lists(list, math.MaxInt/2, 0, values(i4, math.MaxInt, 0, 24)),
		"tensors longer than child":   lists(tensor, 2, 0, values(i4, 5, 0, 20)),
		"tensors without a child":     lists(tensor, 2, 0),
		"bitmap too short":            masked(i4, 100, 0, -1, 12),
		"bitmap offset too large":     masked(i4, 1, 800, 1, 100),
		"bitmap of lists too short":   masked(list, 9, 0, 1, 1, values(i4, 27, 0, 108)),
		"bitmap of elements":          lists(list, 3, 0, masked(i4, 9, 0, -1, 1)),
		"elements' bitmap and offset": lists(list, 1, 2, masked(i4, 9, 0, -1, 1)),
	} {
		t.Run(name, func(t *testing.T) {
			column := bareColumn(d)
			a, err := FromArrow(column)
			require.ErrorIs(t, err, ErrMalformed)
			require.Nil(t, a)
			column.Release()
			require.Nil(t, d.Buffers(), "the column's memory has another reference")
		})
	}
	require.ErrorIs(t, testenv.ErrorOf(FromArrow(nil)), ErrMalformed)
}

// arrow-go can itself produce such a column, from received data or a faulty program.
func TestListsLongerThanTheirElements(t *testing.T) {
	values := array.NewData(arrow.PrimitiveTypes.Int32, 2, []*memory.Buffer{nil, bytesOf(8)}, nil, 0, 0)
	lists := array.NewData(arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32), 1000, []*memory.Buffer{nil}, []arrow.ArrayData{values}, 0, 0)
	column := array.MakeFromData(lists)
	defer column.Release()
	require.ErrorIs(t, testenv.ErrorOf(FromArrow(column)), ErrMalformed)
}

// A slice without nulls of a column with nulls is accepted. Arrow leaves the null count of a slice
// unknown (-1) until it is requested.
func TestSlicesWithoutTheirNulls(t *testing.T) {
	b := array.NewInt32Builder(memory.DefaultAllocator)
	defer b.Release()
	valid := make([]bool, 40)
	numbers := make([]int32, 40)
	for i := range valid {
		valid[i], numbers[i] = i >= 10, int32(i)
	}
	b.AppendValues(numbers, valid)
	column := b.NewArray()
	defer column.Release()
	part := array.NewSlice(column, 10, 40)
	defer part.Release()
	a := testenv.Must(FromArrow(part))(t)
	defer a.Release()
	require.Equal(t, numbers[10:], testenv.Must(usmarray.ToSlice[int32](a))(t))
	with := array.NewSlice(column, 9, 40)
	defer with.Release()
	require.ErrorIs(t, testenv.ErrorOf(FromArrow(with)), ErrNulls)
}

// FuzzFromArrow converts columns with arbitrary lengths, offsets and null counts. The result is an
// error of this package or an array within the buffer.
func FuzzFromArrow(f *testing.F) {
	f.Add(4, 0, 0, 12, 0, 0, 48, 0, int32(3))
	f.Add(2, 1, -1, 9, 3, 2, 48, 2, int32(3))
	f.Add(-1, 5, 7, 0, -3, 1, 4, 1, int32(1))
	f.Add(math.MaxInt, math.MaxInt, -1, math.MaxInt, math.MaxInt, -1, 8, 8, int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, rows, offset, nulls, length, start, childNulls, size, bitmap int, n int32) {
		if size < 0 || size > 1<<16 || bitmap < 0 || bitmap > 1<<10 || n < 1 {
			return
		}
		mask := func() *memory.Buffer {
			if bitmap == 0 {
				return nil
			}
			return bytesOf(bitmap)
		}
		i4 := arrow.PrimitiveTypes.Int32
		values := bytesOf(size)
		child := array.NewData(i4, length, []*memory.Buffer{mask(), values}, nil, childNulls, start)
		for _, d := range []arrow.ArrayData{child, array.NewData(arrow.FixedSizeListOf(n, i4), rows, []*memory.Buffer{mask()}, []arrow.ArrayData{child}, nulls, offset)} {
			a, err := FromArrow(bareColumn(d))
			if err != nil {
				require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, ErrNulls) || errors.Is(err, usmarray.ErrLayout), err)
				continue
			}
			if a.NBytes() > 0 {
				from := uintptr(unsafe.Pointer(unsafe.SliceData(values.Bytes())))
				at := uintptr(a.Pointer())
				require.True(t, at >= from && at+uintptr(a.NBytes()) <= from+uintptr(size))
			}
			a.Release()
		}
	})
}
