//go:build linux && cgo

package syclobj

/*
#include <stdlib.h>
#include "kernel.h"
#include "clprogram.h"

typedef struct { void *p; int err; size_t n; } usmb_made;

static usmb_made go_program_new(void *ctx, void *device, const void *text, size_t n, int il, const char *options) {
	usmb_made r = {NULL, 0, 0};
	r.err = usmb_program_new(ctx, device, text, n, il, options, &r.p);
	return r;
}
static usmb_made go_kernel_new(void *program, const char *name) {
	usmb_made r = {NULL, 0, 0};
	r.err = usmb_kernel_new(program, name, &r.p, &r.n);
	return r;
}
static usmb_made go_kernel_launch(void *queue, void *kernel, const usmb_launch *l, void **deps, size_t n) {
	usmb_made r = {NULL, 0, 0};
	r.err = usmb_kernel_launch(queue, kernel, l, deps, n, &r.p);
	return r;
}
#cgo noescape go_kernel_launch
#cgo nocallback go_kernel_launch
#cgo noescape usmb_kernel_raw_new
#cgo nocallback usmb_kernel_raw_new
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Compile-time comparison of the constants shared with C; see abi_cgo.go.
var _ = map[bool]string{
	false: "",
	maxKernelArgs == C.USMB_KERNEL_MAX_ARGS && argScalar1-1 == C.USMB_KERNEL_ARG_SCALAR1 && argScalar2-1 == C.USMB_KERNEL_ARG_SCALAR2 &&
		argScalar4-1 == C.USMB_KERNEL_ARG_SCALAR4 && argScalar8-1 == C.USMB_KERNEL_ARG_SCALAR8 &&
		argPointer-1 == C.USMB_KERNEL_ARG_POINTER && argLocal-1 == C.USMB_KERNEL_ARG_LOCAL && argBytes-1 == C.USMB_KERNEL_ARG_RAW: "arguments",
}

var _ = map[bool]string{
	false: "",
	clBuilt == C.USMB_CL_BUILT && clRefused == C.USMB_CL_REFUSED && clNoLoader == C.USMB_CL_NOLOADER &&
		clNoDevice == C.USMB_CL_NODEVICE && clFailed == C.USMB_CL_FAILED: "builds",
}

func programNew(m *made) (ref, Code) {
	options := C.CString(m.options)
	defer C.free(unsafe.Pointer(options))
	r := C.go_program_new(m.context.ref, m.device.ref, unsafe.Pointer(unsafe.SliceData(m.text)), C.size_t(len(m.text)), cBool(m.il), options)
	return r.p, Code(r.err)
}

func kernelNew(program ref, name string) (ref, int, Code) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	r := C.go_kernel_new(program, text)
	return r.p, int(r.n), Code(r.err)
}

func deleteKernelRef(sort refSort, r ref) {
	if sort == sortProgram {
		C.usmb_program_delete(r)
		return
	}
	C.usmb_kernel_delete(r)
}

func workLimitsOf(device ref) workLimits {
	var c C.usmb_work_limits
	C.usmb_work_limits_of(device, &c)
	w := workLimits{localBytes: uint64(c.local_bytes), group: int(c.group)}
	for i := range w.extent {
		w.extent[i] = int(c.extent[i])
	}
	return w
}

func rawArgs() bool { return C.usmb_kernel_raw_available() != 0 }

// launchKernel packs a checked launch, submits it and frees what was created for it.
func launchKernel(queue, kernel ref, l *launch, deps []unsafe.Pointer) (ref, Code) {
	var c C.usmb_launch
	c.nargs, c.ndim = C.uint32_t(len(l.args)), C.uint32_t(len(l.global))
	for i, n := range l.global {
		c.global[i] = C.size_t(n)
	}
	for i, n := range l.local {
		c.local[i], c.grouped = C.size_t(n), 1
	}
	raws := 0
	code := codeOK
	for i := range l.args {
		a := &l.args[i]
		c.kinds[i], c.values[i] = C.uint8_t(a.kind-1), C.uint64_t(a.value)
		if a.kind == argBytes && code == codeOK {
			raws++
			c.values[i] = C.uint64_t(uintptr(C.usmb_kernel_raw_new(unsafe.Pointer(unsafe.SliceData(a.bytes)), C.size_t(len(a.bytes)))))
			if c.values[i] == 0 {
				code, l.bad = ErrFailed, i+1
			}
		}
	}
	var r C.usmb_made
	if code == codeOK {
		// Copy the references as integers: deps may lie beside Go pointers, which C must not see.
		var room [32]uintptr
		events := room[:0]
		for _, e := range deps {
			events = append(events, uintptr(e))
		}
		r = C.go_kernel_launch(queue, kernel, &c, (*unsafe.Pointer)(unsafe.Pointer(unsafe.SliceData(events))), C.size_t(len(events)))
		code = Code(r.err)
	}
	for i := 0; raws > 0; i++ {
		if l.args[i].kind == argBytes {
			raws--
			address := uintptr(c.values[i])
			C.usmb_kernel_raw_delete(*(*unsafe.Pointer)(unsafe.Pointer(&address)))
		}
	}
	return r.p, code
}

// clProgram is a program that OpenCL itself built or refused.
type clProgram struct{ p *C.usmb_clprogram }

// clBuild builds m's program with OpenCL.
func clBuild(m *made, more string) clProgram {
	device, driver, options := C.CString(m.info.Name), C.CString(m.info.DriverVersion), C.CString(m.options+more)
	defer C.free(unsafe.Pointer(device))
	defer C.free(unsafe.Pointer(driver))
	defer C.free(unsafe.Pointer(options))
	n := len(m.text)
	if !m.il {
		n-- // the NUL
	}
	return clProgram{C.usmb_clprogram_build(device, driver, unsafe.Pointer(unsafe.SliceData(m.text)), C.size_t(n), cBool(m.il), options)}
}

func (c clProgram) free() { C.usmb_clprogram_free(c.p) }

func (c clProgram) result() int {
	if c.p == nil {
		return clFailed
	}
	return int(C.usmb_clprogram_result(c.p))
}

func (c clProgram) code() int { return int(C.usmb_clprogram_code(c.p)) }

// why returns the reason why OpenCL's log is not available.
func (c clProgram) why() string {
	switch c.result() {
	case clNoLoader:
		return "the compiler's log is not available: the process has no OpenCL loader"
	case clNoDevice:
		return "the compiler's log is not available: OpenCL has no device of that name"
	}
	if c.p == nil {
		return "the compiler's log is not available: out of memory"
	}
	return fmt.Sprintf("the compiler's log is not available: OpenCL error %d", c.code())
}

// log returns the compiler's log, cut to logBytes.
func (c clProgram) log() string {
	var total C.size_t
	b := make([]byte, logBytes)
	b = b[:C.usmb_clprogram_log(c.p, (*C.char)(unsafe.Pointer(&b[0])), logBytes, &total)]
	return cutLog(b, int(total))
}

// kernels returns the names of the program's kernels.
func (c clProgram) kernels() []string {
	var total C.size_t
	b := make([]byte, 1<<20)
	b = b[:C.usmb_clprogram_kernels(c.p, (*C.char)(unsafe.Pointer(&b[0])), 1<<20, &total)]
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == ';' })
}

// params returns OpenCL's description of a kernel's parameters, up to the first that OpenCL does not
// describe.
func (c clProgram) params(kernel string) []KernelParam {
	name := C.CString(kernel)
	defer C.free(unsafe.Pointer(name))
	rows := make([]C.usmb_clargument, maxKernelArgs)
	rows = rows[:C.usmb_clprogram_arguments(c.p, name, &rows[0], maxKernelArgs)]
	params := make([]KernelParam, len(rows))
	for i := range rows {
		t := &rows[i]
		params[i] = KernelParam{Address: addressSpaces[t.address], Const: t.constant != 0, Type: C.GoString(&t._type[0]), Name: C.GoString(&t.name[0])}
		if t.pipe != 0 {
			params[i].Type = pipePrefix + params[i].Type
		}
	}
	return params
}

var addressSpaces = [...]string{
	0: "", C.USMB_CL_ADDRESS_GLOBAL: "global", C.USMB_CL_ADDRESS_LOCAL: "local",
	C.USMB_CL_ADDRESS_CONSTANT: "constant", C.USMB_CL_ADDRESS_PRIVATE: "private",
}
