package usmarray

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// USMInterface describes the array as a __sycl_usm_array_interface__. It waits
// for pending work first. Data is the address of element (0, …, 0) and Offset
// 0; Strides are nil when the elements lie in C order. The dictionary borrows:
// keep the array until the consumer is done.
//
// Errors: ErrNotUSM on the host backend, ErrType for element types that have no
// type string (bfloat16 and the narrower ones: use DLPack), ErrInterface for a
// form of syclobj that the memory cannot have.
func (a *Array) USMInterface() (USMInterface, error) {
	return a.usmInterface("USMInterface", SyclNone)
}

// USMInterfaceAs is USMInterface with another form of syclobj: SyclNone is the
// default, a queue where the memory has one, else its context. A filter string
// stands for the default context of its device and is refused for memory of
// another context.
func (a *Array) USMInterfaceAs(form SyclForm) (USMInterface, error) {
	return a.usmInterface("USMInterfaceAs", form)
}

func (a *Array) usmInterface(op string, form SyclForm) (USMInterface, error) {
	a.hold(op)
	defer a.buf.Release()
	place := a.place
	if place.IsHost() {
		return USMInterface{}, opErr(op, ErrNotUSM, "memory of the host backend belongs to no SYCL context; with a SYCL device, copy the array to USM first (ToDevice); without one, share it by DLPack")
	}
	ts, err := a.dtype.TypeString()
	if err != nil {
		return USMInterface{}, wrapErr(op, ErrType, err)
	}
	if err := a.buf.Wait(); err != nil {
		return USMInterface{}, wrapErr(op, nil, err)
	}
	obj, err := syclObjOf(op, place, form)
	if err != nil {
		return USMInterface{}, err
	}
	if cell := a.buf.Cell(); cell.Flags()&owner.Exported == 0 {
		cell.SetFlags(owner.Exported)
	}
	return a.describe(ts, obj), nil
}

// describe fills in everything but the type string and syclobj; pending work
// was waited for.
func (a *Array) describe(ts string, obj SyclObj) USMInterface {
	d := USMInterface{
		Shape:     a.layout.Shape(),
		TypeStr:   ts,
		TypeDescr: []TypeField{{Type: ts}},
		Data:      uintptr(a.first()),
		ReadOnly:  a.readOnly(),
		Version:   InterfaceVersion,
		SyclObj:   obj,
	}
	if size := a.buf.Size(); size != memmgr.UnknownSize {
		d.Allocation = Extent{Base: a.buf.Address(), Size: uintptr(size)}
	}
	if !a.layout.IsC() {
		d.Strides = a.layout.Strides()
	}
	return d
}

// syclObjOf makes the syclobj of memory in the form asked for.
func syclObjOf(op string, place *syclobj.Place, form SyclForm) (SyclObj, error) {
	ctx, err := place.Context()
	if err != nil {
		return SyclObj{}, wrapErr(op, nil, err)
	}
	queue, qerr := place.Queue()
	switch form {
	case SyclNone:
		if qerr != nil {
			return ByContext(ctx), nil
		}
		return ByQueue(queue), nil
	case SyclContext:
		return ByContext(ctx), nil
	case SyclFilter:
		if !ctx.IsDefault() || place.FilterString() == "" {
			return SyclObj{}, keyErr(op, "syclobj", "a filter string stands for the default context of its device, and %v is in another one; use the context or the queue", place)
		}
		return ByFilter(place.FilterString()), nil
	case SyclQueue:
		if qerr != nil {
			return SyclObj{}, wrapErr(op, nil, qerr)
		}
		return ByQueue(queue), nil
	}
	return SyclObj{}, keyErr(op, "syclobj", "%v is no form", form)
}

// MarshalJSON writes the dictionary for logs, with the keys and the meaning of
// the Python one; syclobj is written as its form and what it names. Nothing
// reads it back: an address means nothing in another process.
func (d USMInterface) MarshalJSON() ([]byte, error) {
	descr := [][]any(nil)
	for _, f := range d.TypeDescr {
		item := []any{f.Name, f.Type}
		if f.Shape != nil {
			item = append(item, f.Shape)
		}
		descr = append(descr, item)
	}
	return json.Marshal(struct {
		Shape     []int   `json:"shape"`
		TypeStr   string  `json:"typestr"`
		TypeDescr [][]any `json:"typedescr"`
		Data      [2]any  `json:"data"`
		Strides   []int   `json:"strides"`
		Offset    int     `json:"offset"`
		Version   int     `json:"version"`
		SyclObj   any     `json:"syclobj"`
	}{
		Shape: append([]int{}, d.Shape...), TypeStr: d.TypeStr, TypeDescr: descr,
		Data: [2]any{fmt.Sprintf("%#x", d.Data), d.IsReadOnly()}, Strides: d.Strides,
		Offset: d.Offset, Version: d.Version, SyclObj: d.SyclObj.describe(),
	})
}

// describe is what logs show of a syclobj.
func (o SyclObj) describe() any {
	if o.form == SyclNone {
		return nil
	}
	m := map[string]string{"form": o.form.String()}
	switch {
	case o.form == SyclFilter:
		m["filter"] = o.filter
	case o.context != nil:
		m["ref"] = fmt.Sprintf("%p", o.context.Ref())
	case o.queue != nil:
		m["ref"] = fmt.Sprintf("%p", o.queue.Ref())
		m["device"] = o.queue.Device().FilterString()
	}
	return m
}

// String writes the dictionary on one line, as MarshalJSON does, but with "<"
// as it is.
func (d USMInterface) String() string {
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Sprintf("<bad dictionary: %v>", err)
	}
	return strings.ReplaceAll(string(b), `\u003c`, "<")
}
