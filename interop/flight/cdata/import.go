//go:build cgo

package cdata

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	arrowarray "github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

func misfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", usmarrow.ErrMalformed, fmt.Sprintf(format, args...))
}

// What arrow-go makes room for before it knows that it is there.
const (
	maxPairs = 1 << 10
	maxText  = 1 << 24
)

// checkSchema holds a schema against what a tensor can be, before arrow-go sees it: for a
// type with offsets arrow-go reads those while it imports, and on a device the host may
// not; lengths in the metadata it follows unseen.
func checkSchema(s *Schema, nested bool) error {
	switch {
	case s.Released():
		return misfit("a schema that was released")
	case s.format == nil:
		return misfit("a schema without a format")
	case s.dictionary != nil:
		return fmt.Errorf("%w: dictionary-encoded values; decode them first", usmarrow.ErrType)
	}
	list, err := checkFormat(formatOf(s))
	switch {
	case err != nil:
		return err
	case list && nested:
		return fmt.Errorf("%w: lists of lists", usmarrow.ErrType)
	case list && (s.nChildren != 1 || s.children == nil || childSchema(s) == nil):
		return misfit("lists whose schema has %d children; they have one, their elements", s.nChildren)
	case !list && s.nChildren != 0:
		return misfit("values whose schema has %d children; they have none", s.nChildren)
	}
	if err := checkMetadata(s.metadata); err != nil || !list {
		return err
	}
	return checkSchema(childSchema(s), true)
}

// maxFormat is more than the longest format that is taken has.
const maxFormat = 32

// formatOf is a copy of a schema's format, or of its beginning.
func formatOf(s *Schema) string {
	var b []byte
	for i := range maxFormat {
		c := *(*byte)(unsafe.Add(s.format, i))
		if c == 0 {
			break
		}
		b = append(b, c)
	}
	return string(b)
}

// checkFormat lets the values through that arrays have, and lists of one size.
func checkFormat(format string) (list bool, err error) {
	if size, ok := strings.CutPrefix(format, "+w:"); ok {
		if n, err := strconv.ParseInt(size, 10, 32); err != nil || n < 1 {
			return false, misfit("format %q: lists have a size from 1 to %d", format, math.MaxInt32)
		}
		return true, nil
	}
	if format == "" {
		return false, misfit("a schema with an empty format")
	}
	for _, known := range formats {
		if format == known {
			return false, nil
		}
	}
	return false, fmt.Errorf("%w: a column or elements of format %q; tensors hold int8 to int64, uint8 to uint64, float16, float32 and float64, as values or in lists of one size (+w)", usmarrow.ErrType, format)
}

// checkMetadata follows the lengths in a schema's metadata, nil when there is none.
func checkMetadata(p unsafe.Pointer) error {
	if p == nil {
		return nil
	}
	pairs := int32At(p)
	if pairs < 0 || pairs > maxPairs {
		return misfit("metadata of %d pairs", pairs)
	}
	p = unsafe.Add(p, 4)
	for range 2 * pairs {
		n := int32At(p)
		if n < 0 || n > maxText {
			return misfit("metadata with a text of %d bytes", n)
		}
		p = unsafe.Add(p, 4+int(n))
	}
	return nil
}

// checkArray holds an array against its schema's form. arrow-go does not ask whether a
// child was moved out; its memory may be gone then.
func checkArray(a *Array, list bool) error {
	switch {
	case a.Released():
		return misfit("an array that was released, or whose elements were moved out")
	case a.dictionary != nil:
		return misfit("an array with a dictionary, of which its schema says nothing")
	case list && (a.nChildren != 1 || a.children == nil || childArray(a) == nil):
		return misfit("lists whose array has %d children; they have one, their elements", a.nChildren)
	case !list && a.nChildren != 0:
		return misfit("values whose array has %d children; they have none", a.nChildren)
	case list:
		return checkArray(childArray(a), false)
	}
	return nil
}

// int32At reads a number at any address, aligned or not.
func int32At(p unsafe.Pointer) int32 {
	return int32(binary.NativeEndian.Uint32(unsafe.Slice((*byte)(p), 4)))
}

// column is arrow-go's of the structs, which it takes; on an error they are released.
func column(schema *Schema, array *Array) (c arrow.Array, err error) {
	defer func() {
		if r := recover(); r != nil { // a type that arrow-go cannot have, such as lists of size 0
			c, err = nil, misfit("arrow-go: %v", r)
		}
		schema.Release()
		if err != nil {
			array.Release()
		}
	}()
	if err := checkSchema(schema, false); err != nil {
		return nil, err
	}
	if err := checkArray(array, schema.nChildren == 1); err != nil {
		return nil, err
	}
	field, err := cdata.ImportCArrowField((*cdata.CArrowSchema)(unsafe.Pointer(schema)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", usmarrow.ErrMalformed, err)
	}
	tensor, err := extension(field)
	if err != nil {
		return nil, err
	}
	storage, err := cdata.ImportCArrayWithType((*cdata.CArrowArray)(unsafe.Pointer(array)), field.Type)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", usmarrow.ErrMalformed, err)
	}
	if tensor == nil {
		return storage, nil
	}
	defer storage.Release()
	return arrowarray.NewExtensionArrayWithStorage(tensor, storage), nil
}

// extension is the extension type of a field, nil for none: arrow-go imports storage, and
// leaves the type in the metadata.
func extension(f arrow.Field) (arrow.ExtensionType, error) {
	if list, ok := f.Type.(*arrow.FixedSizeListType); ok {
		if name, ok := list.ElemField().Metadata.GetValue(ipc.ExtensionTypeKeyName); ok {
			return nil, fmt.Errorf("%w: lists of %q", usmarrow.ErrType, name)
		}
	}
	name, ok := f.Metadata.GetValue(ipc.ExtensionTypeKeyName)
	if !ok {
		return nil, nil // most columns have none
	}
	if name != usmarrow.TensorName {
		return nil, fmt.Errorf("%w: a column of %q; give its storage", usmarrow.ErrType, name)
	}
	parameters, _ := f.Metadata.GetValue(ipc.ExtensionMetadataKeyName)
	return new(usmarrow.TensorType).Deserialize(f.Type, parameters)
}

// Import shows a producer's column as an array in the same memory, read-only, as
// usmarrow.FromArrow does. It takes both structs. Errors: usmarrow.ErrType, ErrNulls,
// ErrMalformed.
func Import(schema *Schema, array *Array) (*usmarray.Array, error) {
	c, err := column(schema, array)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	return usmarrow.FromArrow(c)
}

// ImportDevice is Import by the device interface: memory of the CPU, and of ONEAPI where
// the runtime has that device and the memory is USM of its platform's default context.
// What the producer wants waited for is pending work of the array. Errors also: those of
// syclobj.Runtime.DLPackPlace, and ErrType for other devices.
func ImportDevice(rt *syclobj.Runtime, schema *Schema, array *DeviceArray) (*usmarray.Array, error) {
	deviceType, id, event := array.deviceType, array.deviceID, array.syncEvent
	refuse := func(err error) (*usmarray.Array, error) {
		schema.Release()
		array.Array.Release()
		return nil, err
	}
	if deviceType == DeviceCPU {
		if event != nil {
			return refuse(misfit("an event of the CPU, which has none"))
		}
		return Import(schema, &array.Array)
	}
	if deviceType != DeviceOneAPI {
		return refuse(fmt.Errorf("%w: memory of Arrow's device type %d (%d); CPU (1) and ONEAPI (14) are known here", usmarrow.ErrType, deviceType, id))
	}
	if id < 0 || id > math.MaxInt32 {
		return refuse(misfit("a device of number %d", id))
	}
	var ev *syclobj.Event
	if event != nil {
		var err error
		if ev, err = rt.EventFromRef(event); err != nil {
			return refuse(err)
		}
		defer ev.Close()
	}
	c, err := column(schema, &array.Array)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	a, err := usmarrow.FromArrowOn(c, func(lo, hi uintptr) (*syclobj.Place, error) {
		return rt.DLPackPlace(int32(id), lo, hi)
	})
	if err != nil || ev == nil {
		return a, err
	}
	return pending(a, ev)
}

// pending notes what is to be waited for before the memory of an array is touched. It is
// work of no queue that is known here: were it said to be of the place's, work there
// would count on that queue's order, which knows nothing of the event.
func pending(a *usmarray.Array, ev *syclobj.Event) (*usmarray.Array, error) {
	if a.Place() == nil { // there are no elements
		return a, nil
	}
	if err := a.Buffer().SetPending(nil, ev); err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}
