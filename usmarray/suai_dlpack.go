package usmarray

import (
	"sync/atomic"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/syclobj"
)

// USMInterfaceToDLPack converts a dictionary to a DLPack tensor of the same memory, without a copy.
// release drops the owner of the memory: on success the tensor owns it, and it is called once, after the
// tensor's deleter ran and all other references are dropped; on error it is not called. o holds the
// consumer's requests, as for [Array.DLPackWith]. Errors: those of [FromUSMInterface] and
// [Array.DLPackWith].
func USMInterfaceToDLPack(rt *syclobj.Runtime, d *USMInterface, release func(), o ExportOptions) (dlpack.Tensor, error) {
	// The owner's function must not run unless the export succeeds.
	var done atomic.Bool
	a, err := FromUSMInterface(rt, d, func() {
		if done.Load() && release != nil {
			release()
		}
	})
	if err != nil {
		return dlpack.Tensor{}, err
	}
	t, err := a.DLPackWith(o)
	done.Store(err == nil)
	a.Release()
	return t, err
}

// DLPackToUSMInterface converts a tensor to a dictionary of the same memory, without a copy. If the tensor
// is of this library, it waits for pending work. On success owner owns the tensor, whose handles are stale:
// release owner when the consumer of the dictionary is done. On error the tensor is unchanged and still the
// caller's. Errors: ErrNotUSM for a tensor on another device than kDLOneAPI, ErrType for element types
// without a type string, those of [FromDLPack], and of pending work.
func DLPackToUSMInterface(rt *syclobj.Runtime, t dlpack.Tensor) (d USMInterface, owner *Array, err error) {
	const op = "DLPackToUSMInterface"
	mine, ok := t.Take()
	if !ok {
		return USMInterface{}, nil, opErr(op, ErrExchange, "the tensor was released, detached or taken over before")
	}
	d, owner, err = tensorInterface(op, rt, mine)
	if err != nil {
		mine.Take() // gives it back to the caller
	}
	return d, owner, err
}

// tensorInterface is DLPackToUSMInterface for a tensor that no other goroutine can use. An array cannot
// return its tensor, so everything that can fail is done before the array is made.
func tensorInterface(op string, rt *syclobj.Runtime, t dlpack.Tensor) (USMInterface, *Array, error) {
	if t.Device().Type != dlpack.DeviceOneAPI {
		return USMInterface{}, nil, opErr(op, ErrNotUSM, "the tensor is on %v; the dictionary describes kDLOneAPI memory", t.Device())
	}
	ts, err := t.DataType().TypeString()
	if err != nil {
		return USMInterface{}, nil, wrapErr(op, ErrType, err)
	}
	span := t.Span()
	place, err := importPlace(op, rt, t, &span)
	if err != nil {
		return USMInterface{}, nil, err
	}
	defer place.Release()
	obj, err := syclObjOf(op, place)
	if err != nil {
		return USMInterface{}, nil, err
	}
	if own := ownTensor(t, place); own.Valid() {
		if err := own.WaitForOthers(); err != nil {
			return USMInterface{}, nil, err
		}
	}
	a, err := fromTensor(op, t, place, &span)
	if err != nil {
		return USMInterface{}, nil, err
	}
	a.shown(obj)
	return a.describe(ts, obj), a, nil
}
