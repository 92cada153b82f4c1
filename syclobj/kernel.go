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

// Kernel is a kernel of a program. It may be launched from several goroutines at once: the
// arguments of one launch never get into another. The caller closes it.
type Kernel struct {
	h      handle
	name   string
	made   *made
	params []KernelParam
	fits   atomic.Pointer[Queue] // the queue that was last found to be of its context and device
}

// Name is the kernel's name.
func (k *Kernel) Name() string { return k.name }

// Params describes what the kernel takes; as many as it has parameters, however little the
// driver tells of them. It belongs to the kernel.
func (k *Kernel) Params() []KernelParam { return k.params }

// Close gives the kernel up; launches in progress go on. It may be called again.
func (k *Kernel) Close() error {
	if k != nil {
		k.h.close()
	}
	return nil
}

// Submit launches the kernel on a queue of its context and device, over one to three
// dimensions of work-items. The last dimension runs fastest, as in C order: OpenCL C's
// get_global_id(0) counts it. local is the size of the work-groups along each dimension,
// which divides global; nil leaves it to the driver. Where an extent is 0 there is nothing to
// run: the launch is checked, and the event is nil. The launch starts after the events
// (sycl::event*, borrowed) of deps, as well as after earlier work if the queue is in order.
//
// The event (sycl::event*, nil for complete) is the caller's, for [TakeEvent]. Submit allocates
// nothing on the Go heap. Package usmarray/kernel is the same for arrays, and looks after
// order and lifetime.
//
// Errors: *KernelError with the index of an argument that the kernel does not take;
// ErrArgument for ranges that cannot be, or that the device cannot do, ErrClosed,
// errors.ErrUnsupported on the host backend, and for BytesArg with a library that lacks it.
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

// launch is one launch, as it goes to C.
type launch struct {
	global, local []int
	args          []KernelArg
	bad           int // the argument that C could not take, and one
}

// accepts checks all that the library or the driver would otherwise refuse without words.
func (k *Kernel) accepts(op string, q *Queue, global, local []int, args []KernelArg) error {
	if !k.made.fits(k, q) {
		return opErr(op, ErrArgument, "kernel %s was built for %s in another context, or for another device, than the queue's (%s): build it for this queue", k.name, k.made.where, q.device)
	}
	if len(args) != len(k.params) {
		return opErr(op, ErrArgument, "kernel %s takes %d arguments, %d were given", k.name, len(k.params), len(args))
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

// errNoRaw: DPCTLRawKernelArg came with dpctl 0.20.
var errNoRaw error = &noRawError{}

type noRawError struct{}

func (*noRawError) Error() string {
	return "this SYCL library takes no arguments of several values, which dpctl 0.20 brought: pass the parts as scalars, or `pip install --upgrade dpctl`"
}
func (*noRawError) Is(target error) bool { return ErrUnsupported.Is(target) }

// roomForLocal refuses local memory that the device does not have.
func (m *made) roomForLocal(grouped bool, n, all uint64) error {
	switch have := m.limits.localBytes; {
	case n == 0:
		return fmt.Errorf("%w: local memory has at least one byte", ErrArgument)
	case !grouped:
		return fmt.Errorf("%w: local memory belongs to a work-group: name the size of the groups", ErrArgument)
	case have != 0 && all > have:
		return fmt.Errorf("%w: the device has %d bytes of local memory for a work-group, the arguments so far take %d", ErrArgument, have, all)
	}
	return nil
}

// fits reports whether a queue is of the context and the device of the program.
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

// checkRange refuses ranges that cannot be, or that are beyond the device. Of the device's
// limits the last is that of the last dimension, however many there are.
func (m *made) checkRange(op, name string, global, local []int) error {
	if n := len(global); n < 1 || n > 3 {
		return opErr(op, ErrArgument, "kernel %s: a range of %d dimensions; 1, 2 and 3 are possible", name, n)
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

// failure is why the library gave no event: what it does not tell is guessed from what was
// asked for.
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
		text += "; is a size of work-groups written in the kernel (reqd_work_group_size), or are these too large for it?"
	}
	for i := range l.args {
		if k.params[i].Address == "" {
			text += fmt.Sprintf("; nothing is known of the type of argument %d, given %s", i, l.args[i])
		}
	}
	return &KernelError{Op: op, Kernel: k.name, Index: -1, Err: fmt.Errorf("%s: %w", text, code)}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
