package values

import "reflect"

// Release calls the method Release of the values in v: of v itself, and of the elements and keys of lists, tuples and
// maps.
func Release(v any) {
	switch v := v.(type) {
	case interface{ Release() }:
		v.Release()
	case []any:
		for _, e := range v {
			Release(e)
		}
	case map[string]any:
		for _, e := range v {
			Release(e)
		}
	case map[any]any:
		for k, e := range v {
			Release(k)
			Release(e)
		}
	default:
		if r := reflect.ValueOf(v); r.Kind() == reflect.Slice && r.CanConvert(typeList) { // a tuple
			Release(r.Convert(typeList).Interface())
		}
	}
}
