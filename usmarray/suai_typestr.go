package usmarray

import "github.com/usmbridge/usmbridge/dlpack"

// parseRareTypeStr reads any type string. The array interfaces know the sizes
// of the array libraries and no others; a byte-order sign is required.
func parseRareTypeStr(s string) (DataType, error) {
	dt, err := dlpack.ParseTypeString(s)
	if err != nil {
		return DataType{}, err
	}
	switch s[0] {
	case '<', '=', '|':
		return dt, nil
	case '>', '!':
		// One byte has no order, so dlpack lets it pass; here the sign must
		// still be one of this machine's.
	}
	return DataType{}, &dlpack.Error{Op: "type string", Err: dlpack.ErrDataType,
		Detail: "type string \"" + s + "\" does not begin with '<', '=' or '|', the machine's own byte order"}
}
