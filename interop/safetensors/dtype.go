package safetensors

import (
	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/usmarray"
)

// typeName is an element type and its name in the format.
type typeName struct {
	name string
	dt   usmarray.DataType
}

// types has the element types in the order of the reference implementation. A file has its tensors in the
// reverse order, by decreasing width, so that all elements are aligned.
var types = []typeName{
	{"BOOL", dlpack.Bool}, {"F4", dlpack.Float4E2M1FN}, {"F6_E2M3", dlpack.Float6E2M3FN}, {"F6_E3M2", dlpack.Float6E3M2FN},
	{"U8", dlpack.Uint8}, {"I8", dlpack.Int8}, {"F8_E5M2", dlpack.Float8E5M2}, {"F8_E4M3", dlpack.Float8E4M3FN},
	{"F8_E8M0", dlpack.Float8E8M0FNU}, {"F8_E4M3FNUZ", dlpack.Float8E4M3FNUZ}, {"F8_E5M2FNUZ", dlpack.Float8E5M2FNUZ},
	{"I16", dlpack.Int16}, {"U16", dlpack.Uint16}, {"F16", dlpack.Float16}, {"BF16", dlpack.BFloat16},
	{"I32", dlpack.Int32}, {"U32", dlpack.Uint32}, {"F32", dlpack.Float32}, {"C64", dlpack.Complex64},
	{"F64", dlpack.Float64}, {"I64", dlpack.Int64}, {"U64", dlpack.Uint64},
}

var byName, rankOf = func() (map[string]usmarray.DataType, map[usmarray.DataType]int) {
	names, ranks := map[string]usmarray.DataType{}, map[usmarray.DataType]int{}
	for i, t := range types {
		names[t.name], ranks[t.dt] = t.dt, i
	}
	return names, ranks
}()
