package kernel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Launch submits the kernel on a queue of the context and device that it was built for, and does not wait
// for it; the package documentation describes the order. Views of the memory that exist do not wait for the kernel
// (Array.Wait does). It allocates nothing on the Go heap.
//
// The error may report that earlier work on an array has failed (syclobj.ErrAsync), which would otherwise
// be lost; this launch was submitted nevertheless. All other errors mean that nothing was submitted.
//
// Errors: *OpError, which matches usmarray.ErrType, ErrReadOnly, ErrLayout and ErrNotUSM for arrays,
// syclobj.ErrArgument for other arguments and for ranges, syclobj.ErrClosed, syclobj.ErrFailed if the
// driver refuses, and errors.ErrUnsupported.
func Launch(q *syclobj.Queue, k *syclobj.Kernel, r Range, args ...Arg) error {
	_, err := launch("Launch", q, k, &r, args, false)
	return err
}

// Start is Launch that returns the event of the launch, for waiting with a context and, on profiling
// queues, for its times. The caller closes it, unless it was waited for. It is not nil if the launch was
// submitted, also with an error.
func Start(q *syclobj.Queue, k *syclobj.Kernel, r Range, args ...Arg) (*syclobj.Event, error) {
	return launch("Start", q, k, &r, args, true)
}

// work holds the state of one launch; it is reused.
type work struct {
	held  []memmgr.Buffer // the memory of the arrays
	args  []syclobj.KernelArg
	order memmgr.Submission
	// The last place whose memory was found usable, and the queue; they are used for
	// comparison only.
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

// end releases what the launch held, also after a panic on misuse of an array.
func (w *work) end() {
	for _, b := range w.held {
		b.Release()
	}
	clear(w.held)
	clear(w.args)
	w.held, w.args = w.held[:0], w.args[:0]
	works.Put(w)
}

// take holds the arrays and converts the arguments.
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
		return fmt.Errorf("%w: the array is read-only: pass it by Read to a pointer to const, or pass a Copy", usmarray.ErrReadOnly)
	}
	if !a.strided && !a.array.IsC() && !a.array.IsF() {
		return fmt.Errorf("%w: strides %v leave gaps: Copy the array, or pass the strides to the kernel and use Strided", usmarray.ErrLayout, a.array.Strides())
	}
	return pointsTo(p, a, readOnly)
}

// onQueue refuses memory that is not USM of the queue's context, and a device's own memory on another
// device.
func onQueue(q *syclobj.Queue, place *syclobj.Place) error {
	if place.IsHost() {
		return fmt.Errorf("%w: the array is plain host memory, which kernels cannot use: copy it to USM (ToDevice)", usmarray.ErrNotUSM)
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

// submit submits the launch after the pending work on its arrays and records it as pending.
func (w *work) submit(op string, q *syclobj.Queue, k *syclobj.Kernel, r *Range, args []Arg, wanted bool) (*syclobj.Event, error) {
	deps := w.order.Begin(q, w.held)
	ref, err := k.Submit(q, r.global[:r.nglobal], r.local[:r.nlocal], w.args, deps)
	if err != nil {
		_ = w.order.End(nil) // records nothing, so it cannot fail
		return nil, fromSubmit(op, k, args, err)
	}
	var event *syclobj.Event
	if wanted {
		// The arrays get the reference. If it could not be copied, Copy waited for the work
		// and deleted its event, and the arrays get nil.
		own := syclobj.TakeEvent(q, ref)
		event, ref = own.Copy(), own.Ref()
	}
	if err := w.order.End(ref); err != nil {
		return event, opErr(op, k, fmt.Errorf("earlier work on an array failed: %w", err))
	}
	return event, nil
}
