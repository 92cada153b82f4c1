package cdata

/*
#include <stdlib.h>

typedef void (*usmb_cdata_release)(void *);

void usmbridgeReleaseSchema(void *);
void usmbridgeReleaseArray(void *);

static void *usmb_cdata_schema_release(void) { return (void *)usmbridgeReleaseSchema; }
static void *usmb_cdata_array_release(void) { return (void *)usmbridgeReleaseArray; }
static void usmb_cdata_call(void *release, void *p) { ((usmb_cdata_release)release)(p); }
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"runtime/cgo"
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// share is what structs of one export refer to. A consumer may move a child out and
// release its parent: both own a share.
type share struct {
	structs atomic.Int32
	memory  []unsafe.Pointer // of malloc
	array   *usmarray.Array
	event   *syclobj.Event
}

func (s *share) drop() {
	if s.structs.Add(-1) > 0 {
		return
	}
	for _, p := range s.memory {
		C.free(p)
	}
	_ = s.event.Close() // always nil
	if s.array != nil {
		s.array.Release()
	}
}

// room is zeroed C memory that goes with the share.
func (s *share) room(n uintptr) unsafe.Pointer {
	p := C.calloc(1, C.size_t(n)) // cgo ends the program where there is none
	s.memory = append(s.memory, p)
	return p
}

func (s *share) bytes(b []byte) unsafe.Pointer {
	p := s.room(uintptr(len(b)) + 1)
	copy(unsafe.Slice((*byte)(p), len(b)), b)
	return p
}

func (s *share) text(t string) unsafe.Pointer { return s.bytes([]byte(t)) }

// handle is a struct's share: its private_data.
func (s *share) handle() uintptr {
	s.structs.Add(1)
	return uintptr(cgo.NewHandle(s))
}

func dropHandle(h uintptr) {
	s := cgo.Handle(h).Value().(*share)
	cgo.Handle(h).Delete()
	s.drop()
}

//export usmbridgeReleaseSchema
func usmbridgeReleaseSchema(p unsafe.Pointer) {
	s := (*Schema)(p)
	if s.nChildren > 0 {
		childSchema(s).Release()
	}
	s.release = nil
	dropHandle(s.private)
}

//export usmbridgeReleaseArray
func usmbridgeReleaseArray(p unsafe.Pointer) {
	a := (*Array)(p)
	if a.nChildren > 0 {
		childArray(a).Release()
	}
	a.release = nil
	dropHandle(a.private)
}

// Release gives the struct's contents back to who made them. It may be called again.
func (s *Schema) Release() {
	if s.release != nil {
		C.usmb_cdata_call(s.release, unsafe.Pointer(s))
	}
}

// Release gives the struct's contents back to who made them. It may be called again.
func (a *Array) Release() {
	if a.release != nil {
		C.usmb_cdata_call(a.release, unsafe.Pointer(a))
	}
}

var formats = map[arrow.Type]string{
	arrow.INT8: "c", arrow.INT16: "s", arrow.INT32: "i", arrow.INT64: "l",
	arrow.UINT8: "C", arrow.UINT16: "S", arrow.UINT32: "I", arrow.UINT64: "L",
	arrow.FLOAT16: "e", arrow.FLOAT32: "f", arrow.FLOAT64: "g",
}

// types are those that the formats stand for.
var types = func() map[string]arrow.DataType {
	m := map[string]arrow.DataType{}
	for _, t := range []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64,
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Uint64,
		arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
	} {
		m[formats[t.ID()]] = t
	}
	return m
}()

// metadata is the interface's form of an extension type's name and parameters.
func metadata(t arrow.ExtensionType) []byte {
	b := binary.NativeEndian.AppendUint32(nil, 2)
	for _, s := range []string{"ARROW:extension:name", t.ExtensionName(), "ARROW:extension:metadata", t.Serialize()} {
		b = append(binary.NativeEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}

// row is the number of elements of a tensor; 0 where the column is plain values.
func row(a *usmarray.Array, t *usmarrow.TensorType) int {
	if a.NDim() == 1 {
		return 0
	}
	return int(t.StorageType().(*arrow.FixedSizeListType).Len())
}

func writeSchema(a *usmarray.Array, t *usmarrow.TensorType, out *Schema) {
	s := &share{}
	values := Schema{format: s.text(formats[t.Values().ID()]), release: C.usmb_cdata_schema_release(), name: s.text("")}
	*out = values
	if n := row(a, t); n > 0 {
		values.name = s.text("item")
		values.private = s.handle()
		child := (*Schema)(s.room(unsafe.Sizeof(Schema{})))
		*child = values
		children := s.room(unsafe.Sizeof(child))
		*(**Schema)(children) = child
		out.format = s.text(fmt.Sprintf("+w:%d", n))
		out.metadata = s.bytes(metadata(t))
		out.nChildren, out.children = 1, children
	}
	out.private = s.handle()
}

func writeArray(a *usmarray.Array, t *usmarrow.TensorType, ev *syclobj.Event, out *Array) {
	s := &share{array: a.Retain(), event: ev}
	rows := int64(a.Shape()[0])
	buffers := s.room(2 * unsafe.Sizeof(uintptr(0))) // validity, of which there is none, and values
	*(*unsafe.Pointer)(unsafe.Add(buffers, unsafe.Sizeof(uintptr(0)))) = a.Pointer()
	values := Array{length: int64(a.Size()), nBuffers: 2, buffers: buffers, release: C.usmb_cdata_array_release()}
	*out = values
	if n := row(a, t); n > 0 {
		values.private = s.handle()
		child := (*Array)(s.room(unsafe.Sizeof(Array{})))
		*child = values
		children := s.room(unsafe.Sizeof(child))
		*(**Array)(children) = child
		out.length, out.nBuffers, out.buffers = rows, 1, s.room(unsafe.Sizeof(uintptr(0)))
		out.nChildren, out.children = 1, children
	}
	out.private = s.handle()
	a.Buffer().SetExported()
}

// Export shows an array to a consumer in C, in the same memory, after a wait for pending
// work. It overwrites both structs, which the consumer releases. Errors: those of
// usmarrow.TypeOf, and memmgr.ErrNotHostReadable; then the structs are as they were.
func Export(a *usmarray.Array, schema *Schema, array *Array) error {
	t, _, err := usmarrow.TypeOf(a)
	if err != nil {
		return err
	}
	if _, err := a.Buffer().Bytes(); err != nil { // waits, and knows who may read
		return err
	}
	writeSchema(a, t, schema)
	writeArray(a, t, nil, array)
	return nil
}

// ExportDevice is Export by the device interface. It waits only for memory that the host
// can read. Errors: those of usmarrow.TypeOf, and usmarray.ErrExchange for memory that
// no device's number says (another context than the platform's default one).
func ExportDevice(a *usmarray.Array, schema *Schema, array *DeviceArray) error {
	if p := a.Place(); p == nil || p.HostReadable() {
		var host Array
		if err := Export(a, schema, &host); err != nil {
			return err
		}
		*array = DeviceArray{Array: host, deviceID: -1, deviceType: DeviceCPU}
		return nil
	}
	if !a.Place().IsDefaultContext() {
		return fmt.Errorf("%w: %v: Arrow names a device only, and a consumer looks in its platform's default context; copy the array there", usmarray.ErrExchange, a.Place())
	}
	t, _, err := usmarrow.TypeOf(a)
	if err != nil {
		return err
	}
	dev, err := a.DLDevice()
	if err != nil {
		return err
	}
	ev := a.PendingEvent()
	*array = DeviceArray{deviceID: int64(dev.ID), deviceType: DeviceOneAPI, syncEvent: ev.Ref()}
	writeSchema(a, t, schema)
	writeArray(a, t, ev, &array.Array)
	return nil
}
