package kernel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Launch submits the kernel on a queue of the context and device that it was built for, and
// does not wait for it; the package's page says what comes before and after it. It allocates
// nothing on the Go heap.
//
// The error may tell of earlier work on an array that has failed meanwhile (syclobj.ErrAsync),
// which nobody could learn later; this launch was submitted then all the same. All others say
// that nothing was submitted.
//
// Errors: *OpError; it matches usmarray.ErrType, ErrReadOnly, ErrLayout and ErrNotUSM for
// arrays, syclobj.ErrArgument for other arguments and for ranges, syclobj.ErrClosed,
// syclobj.ErrFailed where the driver refuses, errors.ErrUnsupported.
func Launch(q *syclobj.Queue, k *syclobj.Kernel, r Range, args ...Arg) error {
	_, err := launch("Launch", q, k, &r, args, false)
	return err
}

// Start is Launch that gives the event of the launch, for waiting with a context and, on
// profiling queues, for its times. The caller closes it, unless it was waited for. It is not
// nil when the launch was submitted, whatever the error says.
func Start(q *syclobj.Queue, k *syclobj.Kernel, r Range, args ...Arg) (*syclobj.Event, error) {
	return launch("Start", q, k, &r, args, true)
}

// work is what one launch needs; it is used again.
type work struct {
	held  []memmgr.Buffer // of the arrays
	args  []syclobj.KernelArg
	order memmgr.Submission
	// Where memory was last found to be usable, and from which queue; they are not used for
	// anything but comparing.
	place *syclobj.Place
	queue *syclobj.Queue
}

var works = sync.Pool{New: func() any { return new(work) }}

func launch(op string, q *syclobj.Queue, k *syclobj.Kernel, r *Range, args []Arg, wanted bool) (*syclobj.Event, error) {
	if q == nil || k == nil {
		return nil, opErr(op, k, fmt.Errorf("%w: the queue or the kernel", syclobj.ErrNil))
	}
	if q.IsHost() {
		return nil, opErr(op, k, fmt.Errorf("%w: the host backend runs no kernels; use a queue of a SYCL device", errors.ErrUnsupported))
	}
	if r.nglobal > 3 || r.nlocal > 3 {
		return nil, opErr(op, k, fmt.Errorf("%w: a range has 1 to 3 dimensions", syclobj.ErrArgument))
	}
	w := works.Get().(*work)
	defer w.end()
	if err := w.take(op, q, k, args); err != nil {
		return nil, err
	}
	return w.submit(op, q, k, r, args, wanted)
}

// end gives back what the launch held, also when an array's misuse panics.
func (w *work) end() {
	for _, b := range w.held {
		b.Release()
	}
	clear(w.held)
	clear(w.args)
	w.held, w.args = w.held[:0], w.args[:0]
	works.Put(w)
}

// take holds the arrays and makes arguments of them.
func (w *work) take(op string, q *syclobj.Queue, k *syclobj.Kernel, args []Arg) error {
	params := k.Params()
	for i := range args {
		a := &args[i]
		if !a.isArray {
			w.args = append(w.args, a.value)
			continue
		}
		if a.array == nil {
			return argErr(op, k, i, a, fmt.Errorf("%w: no array", syclobj.ErrNil))
		}
		w.held = append(w.held, a.array.Buffer().Retain())
		if i < len(params) {
			if err := w.accepts(q, &params[i], a); err != nil {
				return argErr(op, k, i, a, err)
			}
		}
		w.args = append(w.args, syclobj.PointerArg(a.array.Pointer()))
	}
	return nil
}

// accepts refuses arrays that the launch cannot use.
func (w *work) accepts(q *syclobj.Queue, p *syclobj.KernelParam, a *Arg) error {
	if place := a.array.Place(); w.place != place || w.queue != q {
		if err := onQueue(q, place); err != nil {
			return err
		}
		w.place, w.queue = place, q
	}
	readOnly := a.array.ReadOnly()
	if readOnly && a.writes {
		return fmt.Errorf("%w: the array is read-only: pass it by Read to a pointer to const, or give a Copy", usmarray.ErrReadOnly)
	}
	if !a.strided && !a.array.IsC() && !a.array.IsF() {
		return fmt.Errorf("%w: strides %v leave gaps: Copy the array, or tell the kernel the strides and say Strided", usmarray.ErrLayout, a.array.Strides())
	}
	return pointsTo(p, a, readOnly)
}

// onQueue refuses memory that is not USM of the queue's context, and a device's own memory on
// another device.
func onQueue(q *syclobj.Queue, place *syclobj.Place) error {
	if place.IsHost() {
		return fmt.Errorf("%w: the array is plain host memory, which no kernel is given: copy it to USM (ToDevice)", usmarray.ErrNotUSM)
	}
	ctx, err := place.Context()
	if err != nil {
		return err
	}
	if !ctx.Equal(q.Context()) {
		return fmt.Errorf("%w: %v is of another context than that of the queue on %v: copy it there (ToDevice)", usmarray.ErrNotUSM, place, q.Device())
	}
	if place.Kind() != syclobj.USMDevice {
		return nil
	}
	d, err := place.Device()
	if err != nil {
		return err
	}
	if !d.Equal(q.Device()) && !d.IsSubDevice() && !q.Device().IsSubDevice() {
		return fmt.Errorf("%w: %v cannot be reached from %v: copy it there (ToDevice)", usmarray.ErrNotUSM, place, q.Device())
	}
	return nil
}

// submit puts the launch into its place among what its arrays are used for.
func (w *work) submit(op string, q *syclobj.Queue, k *syclobj.Kernel, r *Range, args []Arg, wanted bool) (*syclobj.Event, error) {
	deps := w.order.Begin(q, w.held)
	ref, err := k.Submit(q, r.global[:r.nglobal], r.local[:r.nlocal], w.args, deps)
	if err != nil {
		_ = w.order.End(nil) // nothing is recorded, so nothing can fail
		return nil, fromBelow(op, k, args, err)
	}
	var event *syclobj.Event
	if wanted {
		// The reference itself goes to the arrays. Where no copy could be made the work was waited
		// for, and its event let go: then there is none for them to keep.
		own := syclobj.TakeEvent(q, ref)
		event, ref = own.Copy(), own.Ref()
	}
	if err := w.order.End(ref); err != nil {
		return event, opErr(op, k, fmt.Errorf("earlier work on an array failed: %w", err))
	}
	return event, nil
}
