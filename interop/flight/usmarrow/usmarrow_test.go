package usmarrow

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) { memtest.Main(m) }

// newPool returns a pool of host memory, which is closed when the test ends.
func newPool(t *testing.T) *memmgr.Pool {
	t.Helper()
	p := memmgr.NewPool(memmgr.Host())
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// numbers returns a float32 array of different values; the caller releases it.
func numbers(t *testing.T, r memmgr.Resource, shape ...int) *usmarray.Array {
	t.Helper()
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	return testenv.Must(usmarray.FromSlice(r, data, shape))(t)
}

// An array, its column, and an array made from that column share one memory, which stays valid
// until all three are released.
func TestRoundTrip(t *testing.T) {
	p := newPool(t)
	for _, shape := range [][]int{{5}, {4, 3}, {2, 3, 4}, {1, 1, 1}, {0}, {0, 2}, {7, 1}} {
		a := numbers(t, p, shape...)
		want := testenv.Must(usmarray.ToSlice[float32](a))(t)
		column := testenv.Must(ToArrow(a))(t)
		require.Equal(t, shape[0], column.Len())
		require.Equal(t, TensorName, column.DataType().(arrow.ExtensionType).ExtensionName())
		require.Equal(t, shape[1:], append([]int{}, column.ExtensionType().(*TensorType).Shape()...))
		address := a.Pointer()
		a.Release()
		b := testenv.Must(FromArrow(column))(t)
		column.Release()
		require.Equal(t, shape, b.Shape())
		require.True(t, b.ReadOnly())
		require.Equal(t, want, testenv.Must(usmarray.ToSlice[float32](b))(t))
		if b.Size() > 0 {
			require.Equal(t, address, b.Pointer())
		}
		b.Release()
	}
}

// Axes stored in another order become a permutation, and a round trip preserves shape and strides.
func TestPermutation(t *testing.T) {
	p := newPool(t)
	a := numbers(t, p, 2, 3, 4, 5)
	defer a.Release()
	view := testenv.Must(a.Transpose(0, 3, 1, 2))(t)
	column := testenv.Must(ToArrow(view))(t)
	defer column.Release()
	typ := column.ExtensionType().(*TensorType)
	require.Equal(t, []int{3, 4, 5}, typ.Shape())
	require.Equal(t, []int{2, 0, 1}, typ.Permutation())
	require.JSONEq(t, `{"shape":[3,4,5],"permutation":[2,0,1]}`, typ.Serialize())
	b := testenv.Must(FromArrow(column))(t)
	defer b.Release()
	require.Equal(t, view.Shape(), b.Shape())
	require.Equal(t, view.Strides(), b.Strides())
	require.Equal(t, view.Pointer(), b.Pointer())

	rows := testenv.Must(a.Transpose(1, 0, 2, 3))(t)
	require.ErrorIs(t, testenv.ErrorOf(ToArrow(rows)), ErrLayout)
	every := testenv.Must(a.Index(usmarray.All, usmarray.All, usmarray.All, usmarray.All.By(2)))(t)
	require.ErrorIs(t, testenv.ErrorOf(ToArrow(every)), ErrLayout)
	backwards := testenv.Must(a.Index(usmarray.All.By(-1)))(t)
	require.ErrorIs(t, testenv.ErrorOf(ToArrow(backwards)), ErrLayout)
}

func TestElementTypes(t *testing.T) {
	p := newPool(t)
	for _, pair := range types {
		theirs := testenv.Must(ArrowType(pair.ours))(t)
		ours := testenv.Must(DataType(theirs))(t)
		require.Equal(t, pair.ours, ours)
		require.Equal(t, pair.ours.Bits, uint8(theirs.BitWidth()))
	}
	for _, dt := range []usmarray.DataType{usmarray.Bool, usmarray.Complex64, usmarray.Bfloat16} {
		a := testenv.Must(usmarray.Zeros(p, dt, []int{2}))(t)
		require.ErrorIs(t, testenv.ErrorOf(ToArrow(a)), ErrType)
		a.Release()
	}
	empty := testenv.Must(usmarray.Zeros(p, usmarray.Float32, []int{3, 0}))(t)
	defer empty.Release()
	require.ErrorIs(t, testenv.ErrorOf(ToArrow(empty)), ErrType)
	scalar := testenv.Must(usmarray.Zeros(p, usmarray.Float32, nil))(t)
	defer scalar.Release()
	require.ErrorIs(t, testenv.ErrorOf(ToArrow(scalar)), ErrLayout)
}

// Columns built by Arrow: plain values, lists, and slices of both.
func TestColumnsOfArrow(t *testing.T) {
	for _, make := range []struct {
		name  string
		typ   arrow.DataType
		width int
	}{{"values", arrow.PrimitiveTypes.Int32, 1}, {"lists", arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Int32), 3}} {
		t.Run(make.name, func(t *testing.T) {
			checked := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer checked.AssertSize(t, 0)
			column := build(t, checked, make.typ, 10, make.width)
			part := array.NewSlice(column, 2, 6)
			column.Release()
			a := testenv.Must(FromArrow(part))(t)
			part.Release()
			got := testenv.Must(usmarray.ToSlice[int32](a))(t)
			require.Len(t, got, 4*make.width)
			require.EqualValues(t, 2*make.width, got[0])
			a.Release()
		})
	}
	t.Run("nulls", func(t *testing.T) {
		b := array.NewInt32Builder(memory.DefaultAllocator)
		defer b.Release()
		b.AppendValues([]int32{1, 2}, []bool{true, false})
		column := b.NewArray()
		defer column.Release()
		require.ErrorIs(t, testenv.ErrorOf(FromArrow(column)), ErrNulls)
		list := array.NewFixedSizeListBuilder(memory.DefaultAllocator, 2, arrow.PrimitiveTypes.Int32)
		defer list.Release()
		list.Append(true)
		list.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{1, 2}, []bool{true, false})
		lists := list.NewArray()
		defer lists.Release()
		require.ErrorIs(t, testenv.ErrorOf(FromArrow(lists)), ErrNulls)
	})
	t.Run("text", func(t *testing.T) {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		defer b.Release()
		b.Append("no")
		column := b.NewArray()
		defer column.Release()
		require.ErrorIs(t, testenv.ErrorOf(FromArrow(column)), ErrType)
	})
}

func build(t *testing.T, mem memory.Allocator, typ arrow.DataType, rows, width int) arrow.Array {
	t.Helper()
	b := array.NewBuilder(mem, typ)
	defer b.Release()
	for i := range rows * width {
		if list, ok := b.(*array.FixedSizeListBuilder); ok {
			if i%width == 0 {
				list.Append(true)
			}
			list.ValueBuilder().(*array.Int32Builder).Append(int32(i))
		} else {
			b.(*array.Int32Builder).Append(int32(i))
		}
	}
	return b.NewArray()
}

// The type survives serialization. Invalid parameters return ErrType.
func TestTensorType(t *testing.T) {
	typ := testenv.Must(NewTensorType(arrow.PrimitiveTypes.Float64, []int{2, 3}, TensorOptions{DimNames: []string{"h", "w"}, Permutation: []int{1, 0}}))(t)
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: typ}}, nil)
	payload := ipc.GetSchemaPayload(schema, memory.DefaultAllocator)
	payload.Release()
	require.True(t, arrow.TypeEqual(typ, testenv.Must(new(TensorType).Deserialize(typ.StorageType(), typ.Serialize()))(t)))
	plain := testenv.Must(NewTensorType(arrow.PrimitiveTypes.Float64, []int{2, 3}, TensorOptions{DimNames: []string{"h", "w"}}))(t)
	require.False(t, arrow.TypeEqual(typ, plain))
	require.NotNil(t, arrow.GetExtensionType(TensorName))

	list := arrow.FixedSizeListOf(6, arrow.PrimitiveTypes.Float64)
	for _, c := range []struct {
		storage arrow.DataType
		data    string
	}{
		{arrow.PrimitiveTypes.Float64, `{"shape":[6]}`},
		{list, ``}, {list, `{}`}, {list, `[]`}, {list, `{"shape":[5]}`}, {list, `{"shape":[-2,-3]}`},
		{list, `{"shape":[2,3],"permutation":[0,0]}`}, {list, `{"shape":[2,3],"permutation":[0]}`},
		{list, `{"shape":[2,3],"permutation":[1,2]}`}, {list, `{"shape":[2,3],"dim_names":["a"]}`},
		{list, `{"shape":[2147483648,2147483648,2]}`}, {list, `{"shape":["6"]}`},
	} {
		require.ErrorIs(t, testenv.ErrorOf(new(TensorType).Deserialize(c.storage, c.data)), ErrType, c.data)
	}
}

// wantParameters is an independent parser of tensor parameters. It follows the specification:
// member names match exactly and are unique, lists contain only integers or only strings. It uses
// maps of encoding/json, which preserve the case of names.
func wantParameters(data string) (shape, permutation []int, names []string, ok bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(data), &members) != nil || members == nil {
		return nil, nil, nil, false
	}
	tokens := json.NewDecoder(strings.NewReader(data))
	depth, total, name := 0, 0, false // name: the next string is a member name of the outer object
	for t, err := tokens.Token(); err == nil; t, err = tokens.Token() {
		switch {
		case t == json.Delim('{') || t == json.Delim('['):
			depth++
			name = depth == 1
		case t == json.Delim('}') || t == json.Delim(']'):
			depth--
			name = depth == 1
		case depth == 1 && name:
			total++
			name = false
		case depth == 1:
			name = true
		}
	}
	if total != len(members) {
		return nil, nil, nil, false
	}
	null := func(key string) bool { return members[key] == nil || string(members[key]) == "null" }
	list := func(key string) ([]any, bool) {
		var v []any
		d := json.NewDecoder(bytes.NewReader(members[key]))
		d.UseNumber()
		return v, null(key) || d.Decode(&v) == nil
	}
	integers := func(key string) ([]int, bool) {
		values, ok := list(key)
		var all []int
		if values != nil {
			all = []int{}
		}
		for _, v := range values {
			number, isNumber := v.(json.Number)
			n, whole := new(big.Int).SetString(string(number), 10)
			if !isNumber || !whole || !n.IsInt64() {
				return nil, false
			}
			all = append(all, int(n.Int64()))
		}
		return all, ok
	}
	texts, ok1 := list("dim_names")
	if !null("dim_names") {
		names = []string{}
	}
	for _, v := range texts {
		text, isText := v.(string)
		ok1 = ok1 && isText
		names = append(names, text)
	}
	shape, ok2 := integers("shape")
	permutation, ok3 := integers("permutation")
	return shape, permutation, names, ok1 && ok2 && ok3 && shape != nil
}

// validTensor reports whether the parameters are valid for tensors stored in lists of n.
func validTensor(shape, permutation []int, names []string, n int32) bool {
	if len(shape) >= usmarray.MaxDims || names != nil && len(names) != len(shape) || permutation != nil && len(permutation) != len(shape) {
		return false
	}
	elements := big.NewInt(1)
	for _, d := range shape {
		if d < 1 {
			return false
		}
		elements.Mul(elements, big.NewInt(int64(d)))
	}
	for i := range permutation {
		if !slices.Contains(permutation, i) {
			return false
		}
	}
	return elements.Cmp(big.NewInt(int64(n))) == 0
}

// FuzzTensorType parses arbitrary parameters: the type has the parsed values if the parameters are
// valid, and the error is ErrType if they are not.
func FuzzTensorType(f *testing.F) {
	for _, s := range []string{
		`{"shape":[2,3]}`, `{"shape":[]}`, `{"shape":[6],"permutation":[0],"dim_names":["a"]}`, `{`, `{"shape":[1e9]}`,
		`{"SHAPE":[6]}`, `{"shape":[3,2],"Shape":[2,3]}`, `{"shape":[3,2],"shape":[2,3]}`, `{"s\u0068ape":[6]}`,
		`{"shape":[6],"permutation":[null]}`, `{"shape":[6],"dim_names":[null]}`, `{"shape":[3,2],"permutation":[null,1]}`,
		`{"shape":[6],"permutation":null,"dim_names":null}`, `{"shape":[6]} {}`, `null`, `[]`, `{"shape":[6],"more":{"shape":[1],"shape":[1]}}`,
		`{"shape":[6.0]}`, `{"shape":["6"]}`, `{"shape":[18446744073709551622]}`, `{"shape":[-2,-3]}`, `{"shape":[2,3],"permutation":[1,0]}`,
	} {
		f.Add(s, int32(6))
	}
	f.Fuzz(func(t *testing.T, data string, n int32) {
		if n < 1 || len(data) > 1<<13 { // encoding/json bounds the depth of objects
			return
		}
		shape, permutation, names, ok := wantParameters(data)
		ok = ok && validTensor(shape, permutation, names, n)
		got, err := new(TensorType).Deserialize(arrow.FixedSizeListOf(n, arrow.PrimitiveTypes.Int8), data)
		if err != nil {
			require.ErrorIs(t, err, ErrType)
			require.False(t, ok, "%s: %v", data, err)
			return
		}
		require.True(t, ok, data)
		tensor := got.(*TensorType)
		require.Equal(t, [2][]int{shape, permutation}, [2][]int{tensor.Shape(), tensor.Permutation()}, data)
		require.Equal(t, names, tensor.DimNames(), data)
		require.True(t, arrow.TypeEqual(got, testenv.Must(new(TensorType).Deserialize(got.StorageType(), got.Serialize()))(t)))
	})
}

// Parameters that another reader could interpret differently are refused: duplicate members, nulls
// in lists, trailing data. Names with other letter case are not the parameters.
func TestAmbiguousParameters(t *testing.T) {
	for _, s := range []string{
		`{"SHAPE":[6]}`, `{"shape":[3,2],"shape":[2,3]}`, `{"shape":[3,2],"permutation":[null,1]}`, `{"shape":[6],"dim_names":[null]}`, `{"shape":[6]} {}`,
	} {
		require.ErrorIs(t, testenv.ErrorOf(new(TensorType).Deserialize(arrow.FixedSizeListOf(6, arrow.PrimitiveTypes.Int8), s)), ErrType, s)
	}
	got := testenv.Must(new(TensorType).Deserialize(arrow.FixedSizeListOf(6, arrow.PrimitiveTypes.Int8), `{"shape":[2,3],"SHAPE":[3,2],"Permutation":[1,0]}`))(t)
	require.Equal(t, []int{2, 3}, got.(*TensorType).Shape())
	require.Nil(t, got.(*TensorType).Permutation())
}
