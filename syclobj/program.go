package syclobj

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// Program is code that was compiled for the device and the context of a queue. Its
// methods may be used from several goroutines; the caller closes it. Kernels taken from it
// stay usable.
type Program struct {
	h    handle
	made *made
}

// made is what a program was made of and for; its kernels share it.
type made struct {
	text    []byte // OpenCL C, with a NUL at its end, or SPIR-V
	il      bool
	options string
	context handle // a copy of the queue's
	device  handle // likewise
	where   string // its filter string
	info    DeviceInfo
	limits  workLimits

	asking sync.Mutex
	asked  bool
	told   map[string][]KernelParam // nil when OpenCL tells nothing

	// The Program and its Kernels: the last closes context and device. Not under asking, which
	// is held while a compiler runs: nobody's Close waits for that.
	parts atomic.Int32
}

// workLimits is usmb_work_limits: what a launch may ask of the device. 0 is what the
// runtime did not tell.
type workLimits struct {
	localBytes uint64
	group      int
	extent     [3]int
}

// logBytes bounds what is kept of a compiler's words.
const logBytes = 64 << 10

// BuildOpenCL compiles OpenCL C for the device and the context of the queue, with options
// of OpenCL's clBuildProgram ("-cl-std=CL3.0 -DN=4"), which may be empty. It takes as long
// as the driver's compiler and cannot be interrupted. The text is kept until the program
// and its kernels are closed. The caller closes the program.
//
// Errors: *BuildError, with the compiler's words where it refused the text; ErrArgument for
// a NUL in text or options; errors.ErrUnsupported on the host backend, and for devices of
// other backends than OpenCL, for which the library compiles SPIR-V alone.
func (q *Queue) BuildOpenCL(text, options string) (*Program, error) {
	const op = "Queue.BuildOpenCL"
	if strings.IndexByte(text, 0) >= 0 {
		return nil, opErr(op, ErrArgument, "the text has a NUL")
	}
	return q.buildProgram(op, &made{text: append([]byte(text), 0), options: options})
}

// BuildSPIRV is BuildOpenCL for a SPIR-V module of OpenCL's kernel environment, which is
// copied. Level Zero devices take it too; their compiler's words are not to be had. What a
// module says is trusted as far as the driver trusts it: its frame is checked, so that a
// file cut off is ErrArgument. Launches are checked against the parameters that the module
// declares where the driver tells none: memory and of which kind, or values and of which size.
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
	if b := m.info.Backend; !m.il && b != BackendOpenCL {
		return nil, &OpError{Op: op, Kind: errors.ErrUnsupported, Err: fmt.Errorf("on a device of %v, for which the library compiles SPIR-V only: use BuildSPIRV", b)}
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

// keep takes references of the queue's context and device, for the life of the program.
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

// share counts one more part that uses m; the caller uses one.
func (m *made) share() { m.parts.Add(1) }

func (m *made) drop() {
	if m.parts.Add(-1) == 0 {
		m.context.close()
		m.device.close()
	}
}

// buildError is why the library gave no program. It does not tell, so OpenCL is asked to
// build the same once more.
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
		e.Err = fmt.Errorf("OpenCL builds the program, the SYCL library does not: %w", ErrFailed)
	default:
		e.Err = fmt.Errorf("%w; %s", ErrFailed, c.why())
	}
	return e
}

// refused is ErrFailed with OpenCL's number of what failed.
func refused(code int) error { return &clError{code} }

type clError struct{ code int }

func (e *clError) Error() string { return fmt.Sprintf("OpenCL's error %d", e.code) }
func (e *clError) Unwrap() error { return ErrFailed }

// Kernel takes a kernel of the program by its name. Each call makes one of its own, with
// arguments of its own; the caller closes it. The first call on a program asks OpenCL for
// the parameters of its kernels, which takes another run of the compiler; they are known
// from then on.
//
// Errors: ErrArgument, with the names that there are, when the program has no such kernel.
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
		return nil, opErr(op, ErrArgument, "a kernel cannot be called %q", name)
	}
	told := p.made.ask()
	ref, nargs, code := kernelNew(program, name)
	if code != codeOK {
		return nil, p.made.noKernel(op, name, code)
	}
	if nargs > maxKernelArgs {
		deleteRef(sortKernel, ref)
		return nil, opErr(op, ErrArgument, "kernel %s takes %d arguments; %d are possible", name, nargs, maxKernelArgs)
	}
	k := &Kernel{name: name, made: p.made, params: make([]KernelParam, nargs)}
	if params := told[name]; len(params) == nargs {
		copy(k.params, params)
	}
	readFacts(k.params)
	k.h.init(ref, sortKernel)
	p.made.share()
	k.h.final = p.made.drop
	return k, nil
}

// ask asks OpenCL, once, for the kernels of the program and their parameters.
func (m *made) ask() map[string][]KernelParam {
	m.asking.Lock()
	defer m.asking.Unlock()
	if m.asked {
		return m.told
	}
	m.asked = true
	m.told = m.askOpenCL()
	if m.il {
		m.told = mergeParams(m.told, spirvKernels(m.text))
	}
	return m.told
}

// askOpenCL is what the driver tells, nil for nothing.
func (m *made) askOpenCL() map[string][]KernelParam {
	if m.info.Backend != BackendOpenCL {
		return nil
	}
	c := clBuild(m, " -cl-kernel-arg-info")
	defer c.free()
	if c.result() != clBuilt {
		return nil
	}
	told := map[string][]KernelParam{}
	for _, name := range c.kernels() {
		told[name] = c.params(name)
	}
	return told
}

// noKernel is why the library gave no kernel.
func (m *made) noKernel(op, name string, code Code) error {
	told := m.ask()
	if _, there := told[name]; there || told == nil || code != ErrFailed {
		return opErr(op, code, "kernel %s", name)
	}
	return opErr(op, ErrArgument, "the program has no kernel %s; it has %s", name, strings.Join(sortedKeys(told), ", "))
}

// Close gives the program up; kernels taken from it stay usable. It may be called again.
func (p *Program) Close() error {
	if p != nil {
		p.h.close()
	}
	return nil
}

// USMB_CL_*: how OpenCL's own build ended.
const (
	clBuilt = iota
	clRefused
	clNoLoader
	clNoDevice
	clFailed
)

// cutLog makes text of what was kept of a log of so many bytes: what is no text is replaced,
// and where it was cut it ends with a whole line and says so.
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
