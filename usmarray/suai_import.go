package usmarray

import (
	"errors"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// FromUSMInterface returns an array of the memory that a dictionary describes, without a copy. release,
// which may be nil, drops the owner of the memory: on success the array owns it, and it is called once, on
// any goroutine, when the last reference is dropped; on error it is not called and stays the caller's.
//
// The checks are those of [USMInterface.Check], and that the memory has a device. The pointer is never
// dereferenced. The runtime distinguishes allocations only by kind: a span from one allocation into a
// neighbour of the same kind is detected only if Allocation is set.
//
// Errors: ErrInterface for the dictionary, including a closed context; ErrNotUSM for the pointer; those of
// syclobj if there is no SYCL or a call failed.
func FromUSMInterface(rt *syclobj.Runtime, d *USMInterface, release func()) (*Array, error) {
	const op = "FromUSMInterface"
	if d == nil {
		return nil, keyErr(op, "", "the dictionary is nil")
	}
	var s USMSpan
	if err := d.check(&s); err != nil {
		return nil, err
	}
	place, err := d.place(op, rt, &s)
	if err != nil {
		return nil, err
	}
	defer place.Release()
	return d.wrap(op, place, &s, release)
}

// own returns the array's memory, with a reference, if the dictionary is one of [Array.USMInterface] and
// the memory is still alive. The user may have changed any field.
func (d *USMInterface) own(place *syclobj.Place, s *USMSpan) (memmgr.Buffer, bool) {
	if !d.memory.TryRetain() {
		return memmgr.Buffer{}, false
	}
	base, size := d.memory.Address(), uintptr(d.memory.Size())
	if d.memory.Place() == place && s.Lo >= base && s.Hi-base <= size {
		return d.memory, true
	}
	d.memory.Release()
	return memmgr.Buffer{}, false
}

// place asks the runtime about the memory. The result is retained.
func (d *USMInterface) place(op string, rt *syclobj.Runtime, s *USMSpan) (*syclobj.Place, error) {
	at, err := d.SyclObj.resolve(op, rt)
	if err != nil {
		return nil, err
	}
	ctx, q := at.context, at.queue
	if (ctx != nil && ctx.IsHost()) || (q != nil && q.IsHost()) {
		return nil, keyErr(op, "syclobj", "the host backend has no SYCL context and its memory is not USM; exchange it by DLPack")
	}
	if q != nil && q.Ref() != nil && q.Context().IsDefault() {
		// The queue only names the device of host USM: memory in a default context is copied
		// by its device's default queue. Passing the context saves a call in C.
		ctx = q.Context()
	}
	if rt == nil {
		return nil, nilRuntime(op)
	}
	place, err := rt.PlaceOf(ctx, q, s.Lo, s.Hi)
	if err != nil {
		return nil, pointerErr(op, err)
	}
	return place, nil
}

// pointerErr returns the error of a failed pointer check.
func pointerErr(op string, err error) error {
	if errors.Is(err, syclobj.ErrClosed) {
		return &OpError{Op: op, Key: "syclobj", Kind: ErrInterface, Err: err}
	}
	kind := error(nil)
	for _, c := range []syclobj.Code{syclobj.ErrNotUSM, syclobj.ErrOverrun, syclobj.ErrNil, syclobj.ErrArgument} {
		if errors.Is(err, c) {
			kind = ErrNotUSM
		}
	}
	return &OpError{Op: op, Key: "data", Kind: kind, Err: err}
}

// wrap returns the array. The buffer is exactly the span of the
// elements: Data itself, with an offset, may point anywhere and was not checked.
func (d *USMInterface) wrap(op string, place *syclobj.Place, s *USMSpan, release func()) (*Array, error) {
	foreign := memmgr.ForeignOptions{Place: place, Queue: d.SyclObj.Queue, Release: release}
	own, isOwn := d.own(place, s)
	if isOwn {
		foreign.Of, foreign.Release = own, func() {
			defer own.Release()
			if release != nil {
				release()
			}
		}
	}
	buf, err := memmgr.FromForeign(pointerAt(s.Lo), uint64(s.Hi-s.Lo), foreign)
	if err != nil {
		if isOwn {
			own.Release()
		}
		return nil, wrapErr(op, nil, err)
	}
	flags := flagOwner
	if d.ReadOnly {
		flags |= flagReadOnly
	}
	a := newArray(buf, place, s.DataType, len(d.Shape), flags)
	copy(a.layout.shape, d.Shape)
	if d.Strides == nil {
		fillCStrides(a.layout.strides, d.Shape)
	} else {
		copy(a.layout.strides, d.Strides)
	}
	if s.First != s.Lo { // rare; the division takes as long as a call into C
		a.layout.offset = int(s.First-s.Lo) / s.DataType.Size()
	}
	a.watch()
	return a, nil
}
