package usmarrow

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/usmbridge/usmbridge/usmarray"
)

// TensorName is the name of the canonical extension type.
const TensorName = "arrow.fixed_shape_tensor"

func init() {
	// An error means that the program has registered its own type with this name. Columns then
	// have that type, and FromArrow reads its serialized parameters.
	_ = arrow.RegisterExtensionType(new(TensorType))
}

// TensorType is arrow.fixed_shape_tensor: each value is a tensor of one shape, stored
// densely in C order as a fixed_size_list.
type TensorType struct {
	arrow.ExtensionBase
	shape       []int
	dimNames    []string
	permutation []int
}

// TensorArray is a column of tensors.
type TensorArray struct{ array.ExtensionArrayBase }

// TensorOptions are the optional parameters of a tensor type.
type TensorOptions struct {
	// DimNames name the axes of the stored shape; nil for none.
	DimNames []string
	// Permutation is the logical order of the axes: axis i of the tensor is axis
	// Permutation[i] of the stored shape. nil for the stored order.
	Permutation []int
}

// NewTensorType returns the type of tensors with the given stored shape. Errors: ErrType for an
// unsupported element type, and for an invalid shape, names or permutation.
func NewTensorType(values arrow.DataType, shape []int, o TensorOptions) (*TensorType, error) {
	if _, err := DataType(values); err != nil {
		return nil, err
	}
	n, err := tensorLength(shape)
	if err != nil {
		return nil, err
	}
	return newTensorType(arrow.FixedSizeListOf(n, values), shape, o)
}

// tensorLength returns the number of elements of a tensor.
func tensorLength(shape []int) (int32, error) {
	if len(shape) >= usmarray.MaxDims {
		return 0, fmt.Errorf("%w: a tensor of %d axes, at most %d are allowed besides the rows", ErrType, len(shape), usmarray.MaxDims-1)
	}
	n := int64(1)
	for _, d := range shape {
		if d < 1 || d > math.MaxInt32 {
			return 0, fmt.Errorf("%w: a tensor of shape %v; each axis must have 1 to 2^31-1 elements", ErrType, shape)
		}
		if n *= int64(d); n > math.MaxInt32 {
			return 0, fmt.Errorf("%w: a tensor of shape %v has more than 2^31-1 elements; use the first axis as rows", ErrType, shape)
		}
	}
	return int32(n), nil
}

func newTensorType(storage *arrow.FixedSizeListType, shape []int, o TensorOptions) (*TensorType, error) {
	if o.DimNames != nil && len(o.DimNames) != len(shape) {
		return nil, fmt.Errorf("%w: %d names for %d axes", ErrType, len(o.DimNames), len(shape))
	}
	if o.Permutation != nil {
		sorted := slices.Sorted(slices.Values(o.Permutation))
		for i, p := range sorted {
			if p != i {
				sorted = nil
				break
			}
		}
		if len(sorted) != len(shape) {
			return nil, fmt.Errorf("%w: %v is not a permutation of %d axes", ErrType, o.Permutation, len(shape))
		}
	}
	return &TensorType{
		ExtensionBase: arrow.ExtensionBase{Storage: storage},
		shape:         slices.Clone(shape), dimNames: slices.Clone(o.DimNames), permutation: slices.Clone(o.Permutation),
	}, nil
}

// Shape returns the elements along each stored axis.
func (t *TensorType) Shape() []int { return slices.Clone(t.shape) }

// DimNames returns the names of the stored axes, nil for none.
func (t *TensorType) DimNames() []string { return slices.Clone(t.dimNames) }

// Permutation returns the logical order of the axes, nil for the stored order.
func (t *TensorType) Permutation() []int { return slices.Clone(t.permutation) }

// Len returns the number of elements of a tensor.
func (t *TensorType) Len() int { return int(t.Storage.(*arrow.FixedSizeListType).Len()) }

// Values returns the element type.
func (t *TensorType) Values() arrow.DataType { return t.Storage.(*arrow.FixedSizeListType).Elem() }

// ArrayType implements arrow.ExtensionType.
func (*TensorType) ArrayType() reflect.Type { return reflect.TypeFor[TensorArray]() }

// ExtensionName implements arrow.ExtensionType.
func (*TensorType) ExtensionName() string { return TensorName }

// String returns the type in pyarrow's notation.
func (t *TensorType) String() string {
	return fmt.Sprintf("extension<%s[value_type=%v, shape=%v]>", TensorName, t.Values(), t.shape)
}

// ExtensionEquals implements arrow.ExtensionType.
func (t *TensorType) ExtensionEquals(other arrow.ExtensionType) bool {
	o, ok := other.(*TensorType)
	return ok && arrow.TypeEqual(t.Values(), o.Values()) && slices.Equal(t.shape, o.shape) &&
		slices.Equal(t.dimNames, o.dimNames) && slices.Equal(t.order(), o.order())
}

// order returns the permutation, and the identity if it is nil.
func (t *TensorType) order() []int {
	if t.permutation != nil {
		return t.permutation
	}
	o := make([]int, len(t.shape))
	for i := range o {
		o[i] = i
	}
	return o
}

type tensorJSON struct {
	Shape       []int    `json:"shape"`
	DimNames    []string `json:"dim_names,omitempty"`
	Permutation []int    `json:"permutation,omitempty"`
}

// Serialize implements arrow.ExtensionType. It returns the parameters in the JSON form of the Arrow
// specification.
func (t *TensorType) Serialize() string {
	shape := t.shape
	if shape == nil {
		shape = []int{}
	}
	b, err := json.Marshal(tensorJSON{shape, t.dimNames, t.permutation})
	if err != nil {
		panic(err) // integers and strings always have a JSON form
	}
	return string(b)
}

// parameters parses the output of Serialize, strictly, so that two parsers cannot interpret the same
// bytes differently. encoding/json alone accepts "SHAPE" for "shape", uses the last of several members
// with the same name, and reads null as zero.
func parameters(data string) (p tensorJSON, err error) {
	o, err := members(data)
	if err != nil {
		return p, err
	}
	if p.Shape, err = list[int](o["shape"]); err != nil {
		return p, err
	}
	if p.DimNames, err = list[string](o["dim_names"]); err != nil {
		return p, err
	}
	p.Permutation, err = list[int](o["permutation"])
	return p, err
}

// members returns the members of a JSON object by their exact names. It refuses duplicate names.
func members(text string) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(strings.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("not a JSON object"), err)
	}
	o := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // the decoder accepts only strings as names
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if _, twice := o[name]; twice {
			return nil, fmt.Errorf("duplicate name %.40q", name)
		}
		o[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON object")
	}
	return o, nil
}

// list parses a list without nulls. It returns nil if the member is absent or null.
func list[T any](member json.RawMessage) ([]T, error) {
	var found []*T
	if member == nil {
		return nil, nil
	}
	if err := json.Unmarshal(member, &found); err != nil || found == nil {
		return nil, err
	}
	values := make([]T, len(found))
	for i, v := range found {
		if v == nil {
			return nil, fmt.Errorf("a list contains null: %.40s", member)
		}
		values[i] = *v
	}
	return values, nil
}

// Deserialize implements arrow.ExtensionType. It refuses parameters with a duplicate name or a null
// in a list. Errors: ErrType.
func (*TensorType) Deserialize(storage arrow.DataType, data string) (arrow.ExtensionType, error) {
	list, ok := storage.(*arrow.FixedSizeListType)
	if !ok {
		return nil, fmt.Errorf("%w: %s stored as %v, not as a fixed_size_list", ErrType, TensorName, storage)
	}
	p, err := parameters(data)
	if err != nil {
		return nil, fmt.Errorf("%w: parameters of %s: %w", ErrType, TensorName, err)
	}
	if p.Shape == nil {
		return nil, fmt.Errorf("%w: the parameters of %s have no shape", ErrType, TensorName)
	}
	n, err := tensorLength(p.Shape)
	if err != nil {
		return nil, err
	}
	if n != list.Len() {
		return nil, fmt.Errorf("%w: tensors of shape %v stored as lists of %d", ErrType, p.Shape, list.Len())
	}
	return newTensorType(list, p.Shape, TensorOptions{DimNames: p.DimNames, Permutation: p.Permutation})
}
