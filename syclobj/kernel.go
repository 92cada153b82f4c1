package syclobj

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"
)

// maxKernelArgs is USMB_KERNEL_MAX_ARGS.
const maxKernelArgs = 128

// Kernel is a kernel of a program. The caller owns and closes it. It may be launched from several
// goroutines at once: each launch has its own arguments.
type Kernel struct {
	h      handle
	name   string
	made   *made
	params []KernelParam
	fits   atomic.Pointer[Queue] // the last queue whose context and device were found to match
}

// Name returns the kernel's name.
func (k *Kernel) Name() string { return k.name }

// Params describes the kernel's parameters, one entry for each, even if the driver does not describe it.
// The slice belongs to the kernel.
func (k *Kernel) Params() []KernelParam { return k.params }

// Close releases the kernel; launches in progress continue. It may be called repeatedly.
func (k *Kernel) Close() error {
	if k != nil {
		k.h.close()
	}
	return nil
}

// Submit launches the kernel on a queue of its context and device, over one to three dimensions of
// work-items. The last dimension varies fastest, as in C order: OpenCL C's get_global_id(0) counts it.
// local is the size of the work-groups along each dimension, which must divide global; if it is nil, the
// driver chooses. If an extent is 0, the launch is checked, nothing is submitted and the event is nil. The
// launch starts after the events (sycl::event*, borrowed) of deps, and after earlier work if the queue is
// in-order.
//
// The caller owns the returned event (sycl::event*, nil for complete) and passes it to [TakeEvent]. Submit
// allocates nothing on the Go heap. Package usmarray/kernel does the same for arrays and handles order and
// lifetime.
//
// Errors: *KernelError with the index of an argument that the kernel does not accept; ErrArgument for
// invalid ranges and ranges beyond the device's limits; ErrClosed; errors.ErrUnsupported on the host
// backend, and for BytesArg if the library does not support it.
func (k *Kernel) Submit(q *Queue, global, local []int, args []KernelArg, deps []unsafe.Pointer) (unsafe.Pointer, error) {
	const op = "Kernel.Submit"
	if err := notNil(op, k); err != nil {
		return nil, err
	}
	if err := k.h.open(op); err != nil {
		return nil, err
	}
	if err := q.usable(op); err != nil {
		return nil, err
	}
	if q.host {
		return nil, noKernels(op)
	}
	kernel, ok := k.h.use()
	if !ok {
		return nil, opErr(op, ErrClosed, "the kernel")
	}
	defer k.h.done()
	queue, ok := q.h.use()
	if !ok {
		return nil, opErr(op, ErrClosed, "the queue")
	}
	defer q.h.done()
	if err := k.accepts(op, q, global, local, args); err != nil {
		return nil, err
	}
	if slices.Contains(global, 0) {
		return nil, nil
	}
	l := launch{global: global, local: local, args: args}
	event, code := launchKernel(queue, kernel, &l, deps)
	if code != codeOK {
		return nil, k.failure(op, code, &l)
	}
	return event, nil
}

// launch holds the parameters of one launch.
type launch struct {
	global, local []int
	args          []KernelArg
	bad           int // the argument that C refused, plus one; 0 for none
}

// accepts checks everything that the library or the driver would refuse without a reason.
func (k *Kernel) accepts(op string, q *Queue, global, local []int, args []KernelArg) error {
	if !k.made.fits(k, q) {
		return opErr(op, ErrArgument, "kernel %s was built for %s in another context or for another device than the queue's (%s): build it for this queue", k.name, k.made.where, q.device)
	}
	if len(args) != len(k.params) {
		return opErr(op, ErrArgument, "kernel %s takes %d arguments (got %d)", k.name, len(k.params), len(args))
	}
	grouped := len(local) != 0
	var localBytes uint64
	for i := range args {
		a := &args[i]
		if err := k.params[i].takes(a); err != nil {
			return k.argErr(op, i, a, err)
		}
		switch a.kind {
		case argLocal:
			localBytes += min(a.value, math.MaxInt64-localBytes)
			if err := k.made.roomForLocal(grouped, a.value, localBytes); err != nil {
				return k.argErr(op, i, a, err)
			}
		case argBytes:
			if !rawArgs() {
				return k.argErr(op, i, a, errNoRaw)
			}
			if len(a.bytes) == 0 {
				return k.argErr(op, i, a, fmt.Errorf("%w: a value has at least one byte", ErrArgument))
			}
		}
	}
	return k.made.checkRange(op, k.name, global, local)
}

func (k *Kernel) argErr(op string, i int, a *KernelArg, err error) error {
	return &KernelError{Op: op, Kernel: k.name, Index: i, Arg: a.String(), Err: err}
}

// errNoRaw is returned with libraries before dpctl 0.20, which added DPCTLRawKernelArg.
var errNoRaw error = &noRawError{}

type noRawError struct{}

func (*noRawError) Error() string {
	return "this SYCL library does not support arguments of several values, which require dpctl 0.20: pass the parts as scalars, or `pip install --upgrade dpctl`"
}
func (*noRawError) Is(target error) bool { return ErrUnsupported.Is(target) }

// roomForLocal refuses local memory that the device does not have.
func (m *made) roomForLocal(grouped bool, n, all uint64) error {
	switch have := m.limits.localBytes; {
	case n == 0:
		return fmt.Errorf("%w: the size of local memory must be at least one byte", ErrArgument)
	case !grouped:
		return fmt.Errorf("%w: local memory belongs to a work-group: set the size of the groups", ErrArgument)
	case have != 0 && all > have:
		return fmt.Errorf("%w: the device has %d bytes of local memory for a work-group, the arguments so far take %d", ErrArgument, have, all)
	}
	return nil
}

// fits reports whether a queue has the context and the device of the program.
func (m *made) fits(k *Kernel, q *Queue) bool {
	if k.fits.Load() == q {
		return true
	}
	if !m.context.equal(&q.ctx.h) || !m.device.equal(&q.device.h) {
		return false
	}
	k.fits.Store(q)
	return true
}

// checkRange refuses invalid ranges and ranges beyond the device's limits. The device's limits are aligned
// with the last dimension.
func (m *made) checkRange(op, name string, global, local []int) error {
	if n := len(global); n < 1 || n > 3 {
		return opErr(op, ErrArgument, "kernel %s: a range of %d dimensions; use 1, 2 or 3", name, n)
	}
	if len(local) != 0 && len(local) != len(global) {
		return opErr(op, ErrArgument, "kernel %s: work-groups of %d dimensions in a range of %d", name, len(local), len(global))
	}
	items, group := uint64(1), uint64(1)
	for _, n := range global {
		high, low := bits.Mul64(items, uint64(n))
		if n < 0 || high != 0 || low > math.MaxInt64 {
			return opErr(op, ErrArgument, "kernel %s: a range of %v work-items", name, slices.Clone(global))
		}
		items = low
	}
	for i, n := range local {
		most := m.limits.extent[3-len(local)+i]
		if n < 1 || global[i]%n != 0 {
			return opErr(op, ErrArgument, "kernel %s: work-groups of %v do not divide %v work-items evenly", name, slices.Clone(local), slices.Clone(global))
		}
		if group *= uint64(min(n, math.MaxInt32)); most != 0 && n > most || m.limits.group != 0 && group > uint64(m.limits.group) {
			return opErr(op, ErrArgument, "kernel %s: work-groups of %v work-items; the device takes %d at most, along these dimensions %v", name, slices.Clone(local), m.limits.group, m.limits.extent[3-len(local):])
		}
	}
	return nil
}

// failure returns the error of a launch that the library refused. The library gives no reason, so the text
// lists likely ones.
func (k *Kernel) failure(op string, code Code, l *launch) error {
	if l.bad > 0 {
		return k.argErr(op, l.bad-1, &l.args[l.bad-1], code)
	}
	items := 1.0
	for _, n := range l.global {
		items *= float64(n)
	}
	text := "the driver refused the launch"
	switch {
	case items > math.MaxInt32:
		text += fmt.Sprintf("; %d work-items or more at once are beyond some builds of the SYCL library: launch parts", uint64(math.MaxInt32)+1)
	case len(l.local) != 0:
		text += "; possibly the kernel requires another size of work-groups (reqd_work_group_size), or these are too large for it"
	}
	for i := range l.args {
		if k.params[i].Address == "" {
			text += fmt.Sprintf("; the type of argument %d (got %s) is unknown", i, l.args[i])
		}
	}
	return &KernelError{Op: op, Kernel: k.name, Index: -1, Err: fmt.Errorf("%s: %w", text, code)}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
