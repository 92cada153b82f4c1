//go:build cgo

package cdata

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	arrowarray "github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// afterRead, in tests, runs when everything was read and nothing was used yet.
var afterRead func()

// producer owns the copy of an array: it is what arrow-go's buffers in its memory are
// freed to, and calls the producer's release function when the last of them is.
type producer struct {
	refs  atomic.Int64
	array Array
}

var _ memory.Allocator = (*producer)(nil)

// Allocate implements memory.Allocator; nobody calls it.
func (p *producer) Allocate(n int) []byte { return make([]byte, n) }

// Reallocate implements memory.Allocator; nobody calls it.
func (p *producer) Reallocate(n int, _ []byte) []byte { return make([]byte, n) }

// Free implements memory.Allocator.
func (p *producer) Free([]byte) { p.drop() }

func (p *producer) drop() {
	if p.refs.Add(-1) == 0 {
		p.array.Release()
	}
}

// maxBytes is more than a process can address.
const maxBytes = 1 << 57

// buffer is n times size bytes of the producer's memory; nil where there is none.
func (p *producer) buffer(at unsafe.Pointer, n, size int) (*memory.Buffer, error) {
	if n > maxBytes/size || uintptr(at) > math.MaxUint-uintptr(n*size) {
		return nil, misfit("%d elements of %d bytes at %v", n, size, at)
	}
	if at == nil {
		return nil, nil //nolint:nilnil // arrow-go's way to say that there is none
	}
	p.refs.Add(1)
	return memory.NewBufferWithAllocator(unsafe.Slice((*byte)(at), n*size), p), nil
}

// data is arrow-go's of an array of values, or of lists where there are elements.
func (p *producer) data(t arrow.DataType, e *extent) (*arrowarray.Data, error) {
	end := e.offset + e.length
	bitmap, err := p.buffer(e.buffers[0], int(bitutil.CeilByte(min(end, math.MaxInt-7)))/8, 1)
	if err != nil {
		return nil, err
	}
	buffers, children := []*memory.Buffer{bitmap}, []arrow.ArrayData(nil)
	defer func() {
		for _, b := range buffers {
			if b != nil {
				b.Release()
			}
		}
	}()
	if list, ok := t.(*arrow.FixedSizeListType); ok {
		elements, err := p.data(list.Elem(), e.elements)
		if err != nil {
			return nil, err
		}
		defer elements.Release()
		children = append(children, elements)
	} else {
		values, err := p.buffer(e.buffers[1], end, t.(arrow.FixedWidthDataType).Bytes())
		if err == nil && values == nil && e.length > 0 {
			err = misfit("%d values, and no memory with them", e.length)
		}
		if err != nil {
			return nil, err
		}
		buffers = append(buffers, values)
	}
	return arrowarray.NewData(t, e.length, buffers, children, e.nulls, e.offset), nil
}

// column is arrow-go's of the copies of both structs. It takes them: the schema is
// released, the array when nothing refers to its memory any more.
func column(schema Schema, array Array) (arrow.Array, error) {
	defer schema.Release()
	p := &producer{array: array}
	p.refs.Store(1)
	defer p.drop()
	f, err := readField(schema, false)
	if err != nil {
		return nil, err
	}
	e, err := readExtent(array, f.list > 0)
	if err != nil {
		return nil, err
	}
	if afterRead != nil {
		afterRead()
	}
	storage := f.values
	if f.list > 0 {
		storage = arrow.FixedSizeListOf(f.list, f.values)
	}
	var tensor arrow.ExtensionType
	if f.extension != nil {
		if f.extension[0] != usmarrow.TensorName {
			return nil, fmt.Errorf("%w: a column of %q; give its storage", usmarrow.ErrType, f.extension[0])
		}
		if tensor, err = new(usmarrow.TensorType).Deserialize(storage, f.extension[1]); err != nil {
			return nil, err
		}
	}
	data, err := p.data(storage, &e)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	values := arrowarray.MakeFromData(data)
	if tensor == nil {
		return values, nil
	}
	defer values.Release()
	return arrowarray.NewExtensionArrayWithStorage(tensor, values), nil
}

// Import shows a producer's column as an array in the same memory, read-only, as
// usmarrow.FromArrow does. It takes both structs. Errors: usmarrow.ErrType, ErrNulls,
// ErrMalformed.
func Import(schema *Schema, array *Array) (*usmarray.Array, error) {
	return importHost(takeSchema(schema), takeArray(array))
}

func importHost(schema Schema, array Array) (*usmarray.Array, error) {
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
	s, a := takeSchema(schema), takeArray(&array.Array)
	refuse := func(err error) (*usmarray.Array, error) {
		s.Release()
		a.Release()
		return nil, err
	}
	if deviceType == DeviceCPU {
		if event != nil {
			return refuse(misfit("an event of the CPU, which has none"))
		}
		return importHost(s, a)
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
	c, err := column(s, a)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	b, err := usmarrow.FromArrowOn(c, func(lo, hi uintptr) (*syclobj.Place, error) {
		return rt.DLPackPlace(int32(id), lo, hi)
	})
	if err != nil || ev == nil {
		return b, err
	}
	return pending(b, ev)
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
