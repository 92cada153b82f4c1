package usmarray

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// USMInterface describes the array as a __sycl_usm_array_interface__. Data is the address of element
// (0, …, 0) and Offset is 0. Strides are nil if the elements are in C order. The dictionary borrows: keep the
// array until the consumer is done.
//
// SyclObj is the queue of the memory's place, or its context if it has no queue. USMInterface waits for
// pending work first, but not for unreported work of other libraries on that queue: work that the consumer
// submits to it comes after. A consumer with another queue waits for that queue first ([syclobj.Queue.Wait]).
// Replace SyclObj if the consumer needs another form: use [syclobj.Place.Context], or, for memory in the default context
// ([syclobj.Place.IsDefaultContext]), [syclobj.Place.FilterString].
//
// Errors: ErrNotUSM on the host backend, and ErrType for element types that have no type string (bfloat16
// and narrower floats; use DLPack).
func (a *Array) USMInterface() (USMInterface, error) {
	const op = "USMInterface"
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
	if err := a.buf.WaitForOthers(); err != nil {
		return USMInterface{}, wrapErr(op, nil, err)
	}
	obj, err := syclObjOf(op, place)
	if err != nil {
		return USMInterface{}, err
	}
	a.shown(obj)
	return a.describe(ts, obj), nil
}

// shown records that consumers of a dictionary may work on the memory, on the queue in it.
func (a *Array) shown(obj SyclObj) {
	if cells.Of(a.buf).Flags()&owner.Exported == 0 {
		a.buf.SetExported()
	}
	a.buf.SharedOn(nil)
}

// describe fills in all fields, after pending work.
func (a *Array) describe(ts string, obj SyclObj) USMInterface {
	d := USMInterface{
		Shape:     a.layout.Shape(),
		TypeStr:   ts,
		TypeDescr: []TypeField{{Type: ts}},
		Data:      uintptr(a.first()),
		ReadOnly:  a.readOnly(),
		Version:   InterfaceVersion,
		SyclObj:   obj,
		memory:    a.buf,
	}
	if size := a.buf.Size(); size != memmgr.UnknownSize {
		d.Allocation = Extent{Base: a.buf.Address(), Size: uintptr(size)}
	}
	if !a.layout.isC() {
		d.Strides = a.layout.Strides()
	}
	return d
}

// syclObjOf returns the queue of the memory, or its context if it has no queue.
func syclObjOf(op string, place *syclobj.Place) (SyclObj, error) {
	if queue, err := place.Queue(); err == nil {
		return SyclObj{Queue: queue}, nil
	}
	ctx, err := place.Context()
	if err != nil {
		return SyclObj{}, wrapErr(op, nil, err)
	}
	return SyclObj{Context: ctx}, nil
}

// String returns the dictionary as JSON on one line, with the keys and the meaning of the Python one.
// syclobj is written as its form and its reference or filter string.
func (d USMInterface) String() string {
	descr := [][]any(nil)
	for _, f := range d.TypeDescr {
		item := []any{f.Name, f.Type}
		if f.Shape != nil {
			item = append(item, f.Shape)
		}
		descr = append(descr, item)
	}
	b, err := json.Marshal(struct {
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
		Data: [2]any{fmt.Sprintf("%#x", d.Data), d.ReadOnly}, Strides: d.Strides,
		Offset: d.Offset, Version: d.Version, SyclObj: d.SyclObj.describe(),
	})
	if err != nil {
		return fmt.Sprintf("<bad dictionary: %v>", err)
	}
	return strings.ReplaceAll(string(b), `\u003c`, "<")
}

// describe returns the form of a syclobj and its reference or filter string.
func (o SyclObj) describe() any {
	switch {
	case o.Filter != "":
		return map[string]string{"form": "filter string", "filter": o.Filter}
	case o.Context != nil:
		return map[string]string{"form": "SyclContext", "ref": fmt.Sprintf("%p", o.Context.Ref())}
	case o.Queue != nil:
		return map[string]string{"form": "SyclQueue", "ref": fmt.Sprintf("%p", o.Queue.Ref()), "device": o.Queue.Device().FilterString()}
	}
	return nil
}
