package syclobj

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Program is code that was compiled for the device and context of a queue. The caller owns and closes it;
// kernels of it stay usable. Methods may be called from several goroutines.
type Program struct {
	h    handle
	made *made
}

// made holds the source, options and target of a program; its kernels share it.
type made struct {
	text    []byte // OpenCL C, with a NUL at its end, or SPIR-V
	il      bool
	options string
	context handle // a copy of the queue's
	device  handle // a copy of the queue's
	where   string // the device's filter string
	info    DeviceInfo
	limits  workLimits

	describing sync.Mutex
	described  map[string][]KernelParam // nil if there is no description
	final      bool                     // described need not be read again

	// Counts the Program and its Kernels; the last one closes context and device. describing does not
	// guard it, so that Close does not wait for a running compiler.
	parts atomic.Int32
}

// workLimits is usmb_work_limits: the device's limits for a launch. 0 means unknown.
type workLimits struct {
	localBytes uint64
	group      int
	extent     [3]int
}

// logBytes limits the stored log of the compiler.
const logBytes = 64 << 10

// BuildOpenCL compiles OpenCL C for the device and context of the queue, with options of OpenCL's
// clBuildProgram ("-cl-std=CL3.0 -DN=4"), which may be empty. It takes as long as the driver's compiler
// and cannot be interrupted. The text is kept until the program and its kernels are closed. The caller
// closes the program.
//
// Errors: *BuildError, with the compiler's log if it refused the text (the library does not report it, so
// OpenCL builds the program again); ErrArgument for a NUL in text or options; errors.ErrUnsupported on the
// host backend and on devices of other backends than OpenCL.
func (q *Queue) BuildOpenCL(text, options string) (*Program, error) {
	const op = "Queue.BuildOpenCL"
	if strings.IndexByte(text, 0) >= 0 {
		return nil, opErr(op, ErrArgument, "the text has a NUL")
	}
	return q.buildProgram(op, &made{text: append([]byte(text), 0), options: options})
}

// BuildSPIRV is BuildOpenCL for a SPIR-V module of OpenCL's kernel environment, which is copied. Level
// Zero devices are supported too, without their compiler's log. The CUDA and HIP backends take neither. The
// module is trusted as far as the driver trusts it: only its frame is checked, so that a truncated file is
// ErrArgument. If the driver does not describe the parameters, launches are checked against the declarations
// in the module: the kind of memory, or the size of values.
func (q *Queue) BuildSPIRV(module []byte, options string) (*Program, error) {
	const op = "Queue.BuildSPIRV"
	if err := q.usable(op); err != nil {
		return nil, err
	}
	own := append([]byte(nil), module...)
	if err := checkSPIRV(own); err != nil {
		return nil, &OpError{Op: op, Err: err}
	}
	return q.buildProgram(op, &made{text: own, il: true, options: options})
}

func (q *Queue) buildProgram(op string, m *made) (*Program, error) {
	if err := q.usable(op); err != nil {
		return nil, err
	}
	if q.host {
		return nil, noKernels(op)
	}
	if strings.IndexByte(m.options, 0) >= 0 {
		return nil, opErr(op, ErrArgument, "the options have a NUL")
	}
	m.where, m.info = q.device.FilterString(), q.device.Info()
	if b := m.info.Backend; b != BackendOpenCL && (!m.il || b != BackendLevelZero) {
		return nil, &OpError{Op: op, Kind: errors.ErrUnsupported, Err: fmt.Errorf(
			"on %s; OpenCL C needs an opencl device, SPIR-V an opencl or level_zero device, and other backends take neither", m.where)}
	}
	if err := m.keep(op, q); err != nil {
		return nil, err
	}
	program, code := programNew(m)
	if code != codeOK {
		err := m.buildError(op, code)
		m.drop()
		return nil, err
	}
	p := &Program{made: m}
	p.h.init(program, sortProgram)
	p.h.final = m.drop
	return p, nil
}

func noKernels(op string) error {
	return &OpError{Op: op, Kind: errors.ErrUnsupported, Err: errors.New("on the host backend, which runs no kernels: use a queue of a SYCL device")}
}

// keep takes references of the queue's context and device for the life of the program.
func (m *made) keep(op string, q *Queue) error {
	c, ok := q.ctx.h.use()
	if !ok {
		return opErr(op, ErrClosed, "the queue's context")
	}
	defer q.ctx.h.done()
	d, ok := q.device.h.use()
	if !ok {
		return opErr(op, ErrClosed, "the queue's device")
	}
	defer q.device.h.done()
	context := copyRef(sortContext, c)
	if context == nil {
		return opErr(op, ErrFailed, "copying the context")
	}
	device := copyRef(sortDevice, d)
	if device == nil {
		deleteRef(sortContext, context)
		return opErr(op, ErrFailed, "copying the device")
	}
	m.context.init(context, sortContext)
	m.device.init(device, sortDevice)
	m.limits = workLimitsOf(device)
	m.parts.Store(1)
	return nil
}

// share counts one more user of m.
func (m *made) share() { m.parts.Add(1) }

func (m *made) drop() {
	if m.parts.Add(-1) == 0 {
		m.context.close()
		m.device.close()
	}
}

// buildError returns the reason why the library did not build the program. The library gives none, so
// OpenCL builds the program once more.
func (m *made) buildError(op string, code Code) error {
	e := &BuildError{Op: op, Device: m.where, Err: code}
	if code != ErrFailed {
		return e
	}
	c := clBuild(m, "")
	defer c.free()
	switch c.result() {
	case clRefused:
		e.Log = c.log()
		e.Err = fmt.Errorf("the compiler refused the program: %w", refused(c.code()))
	case clBuilt:
		e.Log = c.log()
		e.Err = fmt.Errorf("OpenCL builds the program, but the SYCL library does not: %w", ErrFailed)
	default:
		e.Err = fmt.Errorf("%w; %s", ErrFailed, c.why())
	}
	return e
}

// refused returns ErrFailed with the number of OpenCL's error.
func refused(code int) error { return &clError{code} }

type clError struct{ code int }

func (e *clError) Error() string { return fmt.Sprintf("OpenCL error %d", e.code) }
func (e *clError) Unwrap() error { return ErrFailed }

// Kernel returns a kernel of the program by its name. Each call returns a new one with its own arguments;
// the caller closes it. The first call on a program reads the parameters of its kernels from OpenCL, which
// runs the compiler once more.
//
// Errors: ErrArgument, with the existing names, if the program has no such kernel.
func (p *Program) Kernel(name string) (*Kernel, error) {
	const op = "Program.Kernel"
	if err := notNil(op, p); err != nil {
		return nil, err
	}
	program, ok := p.h.use()
	if !ok || p.h.closed.Load() {
		if ok {
			p.h.done()
		}
		return nil, opErr(op, ErrClosed, "the program")
	}
	defer p.h.done()
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return nil, opErr(op, ErrArgument, "%q is not a valid kernel name", name)
	}
	described := p.made.describeKernels()
	ref, nargs, code := kernelNew(program, name)
	if code != codeOK {
		return nil, p.made.noKernel(op, name, code)
	}
	if nargs > maxKernelArgs {
		deleteRef(sortKernel, ref)
		return nil, opErr(op, ErrArgument, "kernel %s takes %d arguments; the maximum is %d", name, nargs, maxKernelArgs)
	}
	k := &Kernel{name: name, made: p.made, params: make([]KernelParam, nargs)}
	if params := described[name]; len(params) == nargs {
		copy(k.params, params)
	}
	readFacts(k.params)
	k.h.init(ref, sortKernel)
	p.made.share()
	k.h.final = p.made.drop
	return k, nil
}

// describeKernels returns the kernels of the program and their parameters. They are read once, unless OpenCL
// fails to describe them.
func (m *made) describeKernels() map[string][]KernelParam {
	m.describing.Lock()
	defer m.describing.Unlock()
	if m.final {
		return m.described
	}
	m.described, m.final = m.describeByOpenCL()
	if m.il {
		m.described = mergeParams(m.described, spirvKernels(m.text))
	}
	return m.described
}

// describeByOpenCL returns the driver's description, nil if there is none, and whether a later attempt would
// have the same result.
func (m *made) describeByOpenCL() (described map[string][]KernelParam, final bool) {
	if m.info.Backend != BackendOpenCL {
		return nil, true
	}
	c := clBuild(m, " -cl-kernel-arg-info")
	defer c.free()
	if c.result() != clBuilt {
		return nil, c.result() == clRefused && c.code() == clBuildFailure
	}
	described = map[string][]KernelParam{}
	for _, name := range c.kernels() {
		described[name] = c.params(name)
		if c.code() != 0 {
			return nil, false
		}
	}
	return described, true
}

// noKernel returns the reason why the library returned no kernel.
func (m *made) noKernel(op, name string, code Code) error {
	described := m.describeKernels()
	if _, there := described[name]; there || described == nil || code != ErrFailed {
		return opErr(op, code, "kernel %s", name)
	}
	return opErr(op, ErrArgument, "the program has no kernel %s; its kernels are %s", name, strings.Join(sortedKeys(described), ", "))
}

// Close releases the program; its kernels stay usable. It may be called repeatedly.
func (p *Program) Close() error {
	if p != nil {
		p.h.close()
	}
	return nil
}

// USMB_CL_*: the result of OpenCL's own build.
const (
	clBuilt = iota
	clRefused
	clNoLoader
	clNoDevice
	clFailed
)

// clBuildFailure is CL_BUILD_PROGRAM_FAILURE: the compiler refuses the text.
const clBuildFailure = -11

// cutLog converts the stored part of a log of total bytes to text: it replaces invalid UTF-8, and a cut
// log ends with a whole line and a note.
func cutLog(b []byte, total int) string {
	s := strings.ToValidUTF8(strings.ReplaceAll(string(b), "\x00", ""), "\uFFFD")
	if total <= len(b) {
		return s
	}
	if end := strings.LastIndexByte(s, '\n'); end > 0 {
		s = s[:end]
	}
	return s + fmt.Sprintf("\n(cut: %d bytes in all)", total)
}
