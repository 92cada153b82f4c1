package cdata

import "unsafe"

// The layout of the interfaces' structs (Arrow's specification of the C data interface
// and of the C device data interface) where pointers have 8 bytes; a test compares it
// with the header that arrow-go carries. Functions are kept as addresses: Go calls none.
// A struct may lie in C memory or in Go's: it holds no Go pointers.

// Schema is struct ArrowSchema. The zero value is one that was released.
type Schema struct {
	format     unsafe.Pointer // C strings
	name       unsafe.Pointer
	metadata   unsafe.Pointer // int32 pairs; int32 length and bytes, twice a pair
	flags      int64
	nChildren  int64
	children   unsafe.Pointer // *[nChildren]*Schema
	dictionary unsafe.Pointer
	release    unsafe.Pointer // void (*)(struct ArrowSchema *); nil: it was
	private    uintptr
}

// Array is struct ArrowArray. The zero value is one that was released.
type Array struct {
	length     int64
	nullCount  int64
	offset     int64
	nBuffers   int64
	nChildren  int64
	buffers    unsafe.Pointer // *[nBuffers]*byte
	children   unsafe.Pointer // *[nChildren]*Array
	dictionary unsafe.Pointer
	release    unsafe.Pointer // void (*)(struct ArrowArray *); nil: it was
	private    uintptr
}

// DeviceArray is struct ArrowDeviceArray.
type DeviceArray struct {
	Array      Array
	deviceID   int64
	deviceType int32
	syncEvent  unsafe.Pointer
	reserved   [3]int64
}

// The device types that there are here.
const (
	DeviceCPU    = 1
	DeviceOneAPI = 14
)

// Released says whether there is nothing in the struct.
func (s *Schema) Released() bool { return s.release == nil }

// Released says whether there is nothing in the struct.
func (a *Array) Released() bool { return a.release == nil }

// Device is the device type and its number: -1 for DeviceCPU, the index that DLPack has
// too for DeviceOneAPI.
func (d *DeviceArray) Device() (deviceType int32, id int64) { return d.deviceType, d.deviceID }

// SyncEvent is the address of what a consumer waits for before it touches the memory: of
// DeviceOneAPI a sycl::event, which the struct owns. nil: nothing.
func (d *DeviceArray) SyncEvent() unsafe.Pointer { return d.syncEvent }

func childSchema(s *Schema) *Schema { return *(**Schema)(s.children) }
func childArray(a *Array) *Array    { return *(**Array)(a.children) }
