package usmarray

import (
	"sync/atomic"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/syclobj"
)

// USMInterfaceToDLPack turns a dictionary into a DLPack tensor of the same
// memory. release is what keeps the memory alive: on success the tensor owns it
// and it is called once, after the tensor's deleter ran and everything else
// made from it is gone; on error it is not called.
func USMInterfaceToDLPack(rt *syclobj.Runtime, d *USMInterface, release func(), o ExportOptions) (dlpack.Tensor, error) {
	// Until the export stands, the owner's function must not run.
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

// DLPackToUSMInterface turns a tensor into a dictionary of the same memory. On
// success owner holds the tensor, whose handles are stale: release the owner when the consumer of the dictionary
// is done. On error the tensor is untouched and still the caller's.
func DLPackToUSMInterface(rt *syclobj.Runtime, t dlpack.Tensor) (d USMInterface, owner *Array, err error) {
	const op = "DLPackToUSMInterface"
	mine, ok := t.Take()
	if !ok {
		return USMInterface{}, nil, opErr(op, ErrExchange, "the tensor was released, detached or taken over before")
	}
	d, owner, err = tensorInterface(op, rt, mine)
	if err != nil {
		mine.Take() // it is the caller's again
	}
	return d, owner, err
}

// tensorInterface is DLPackToUSMInterface of a tensor that nobody else can use
// meanwhile. A tensor cannot be had back from an array, so all that can fail
// comes before the array is made.
func tensorInterface(op string, rt *syclobj.Runtime, t dlpack.Tensor) (USMInterface, *Array, error) {
	if t.Device().Type != dlpack.DeviceOneAPI {
		return USMInterface{}, nil, opErr(op, ErrNotUSM, "the tensor lies on %v; the dictionary describes kDLOneAPI memory", t.Device())
	}
	ts, err := t.DataType().TypeString()
	if err != nil {
		return USMInterface{}, nil, wrapErr(op, ErrType, err)
	}
	span := t.Span()
	place, err := importPlace(op, rt, t.Device(), &span)
	if err != nil {
		return USMInterface{}, nil, err
	}
	obj, err := syclObjOf(op, place)
	if err == nil {
		var a *Array
		if a, err = wrapTensor(op, t, place, &span); err == nil {
			return a.describe(ts, obj), a, nil
		}
	}
	place.Release()
	return USMInterface{}, nil, err
}
