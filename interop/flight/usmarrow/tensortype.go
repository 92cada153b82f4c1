package usmarrow

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/usmbridge/usmbridge/interop/flight/internal/jsonobject"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TensorName is the name of the canonical extension type.
const TensorName = "arrow.fixed_shape_tensor"

func init() {
	// An error says that the program has registered a type of its own by that name;
	// then columns come as that type, and FromArrow reads them by what they say.
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

// TensorOptions are what a tensor type may say besides.
type TensorOptions struct {
	// DimNames name the axes of the stored shape; nil for none.
	DimNames []string
	// Permutation is the order in which the axes are meant: axis i of the tensor is axis
	// Permutation[i] of the stored shape. nil for the stored order.
	Permutation []int
}

// NewTensorType makes the type of tensors with so many elements along each stored axis.
// Errors: ErrType for values that no array has, and for a shape, names or permutation
// that cannot be.
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

func tensorLength(shape []int) (int32, error) {
	if len(shape) >= usmarray.MaxDims {
		return 0, fmt.Errorf("%w: a tensor of %d axes; at most %d and one for the rows", ErrType, len(shape), usmarray.MaxDims-1)
	}
	n := int64(1)
	for _, d := range shape {
		if d < 1 || d > math.MaxInt32 {
			return 0, fmt.Errorf("%w: a tensor of shape %v; arrow-go's lists have a size of at least 1", ErrType, shape)
		}
		if n *= int64(d); n > math.MaxInt32 {
			return 0, fmt.Errorf("%w: a tensor of shape %v has more than 2^31-1 elements; make the first axis rows", ErrType, shape)
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
			return nil, fmt.Errorf("%w: %v is no permutation of %d axes", ErrType, o.Permutation, len(shape))
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

// Permutation returns the order in which the axes are meant, nil for the stored one.
func (t *TensorType) Permutation() []int { return slices.Clone(t.permutation) }

// Values is the type of the elements.
func (t *TensorType) Values() arrow.DataType { return t.Storage.(*arrow.FixedSizeListType).Elem() }

// ArrayType implements arrow.ExtensionType.
func (*TensorType) ArrayType() reflect.Type { return reflect.TypeFor[TensorArray]() }

// ExtensionName implements arrow.ExtensionType.
func (*TensorType) ExtensionName() string { return TensorName }

// String names the type as pyarrow does.
func (t *TensorType) String() string {
	return fmt.Sprintf("extension<%s[value_type=%v, shape=%v]>", TensorName, t.Values(), t.shape)
}

// ExtensionEquals implements arrow.ExtensionType.
func (t *TensorType) ExtensionEquals(other arrow.ExtensionType) bool {
	o, ok := other.(*TensorType)
	return ok && arrow.TypeEqual(t.Values(), o.Values()) && slices.Equal(t.shape, o.shape) &&
		slices.Equal(t.dimNames, o.dimNames) && slices.Equal(t.order(), o.order())
}

// order is the permutation, written out.
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

// Serialize implements arrow.ExtensionType: the parameters as the specification of the
// extension type has them.
func (t *TensorType) Serialize() string {
	shape := t.shape
	if shape == nil {
		shape = []int{}
	}
	b, err := json.Marshal(tensorJSON{shape, t.dimNames, t.permutation})
	if err != nil {
		panic(err) // integers and strings always can be
	}
	return string(b)
}

// parameters reads what Serialize writes, by the specification's names alone.
func parameters(data string) (p tensorJSON, err error) {
	o, err := jsonobject.Read([]byte(data))
	if err != nil {
		return p, err
	}
	if p.Shape, err = jsonobject.List[int](o, "shape"); err != nil {
		return p, err
	}
	if p.DimNames, err = jsonobject.List[string](o, "dim_names"); err != nil {
		return p, err
	}
	p.Permutation, err = jsonobject.List[int](o, "permutation")
	return p, err
}

// Deserialize implements arrow.ExtensionType. Parameters of which a name comes twice, or
// a list has a null, are refused. Errors: ErrType.
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
		return nil, fmt.Errorf("%w: parameters of %s without a shape", ErrType, TensorName)
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
