//go:build !linux || !cgo

package syclobj

import (
	"context"
	"unsafe"
)

// Without cgo, or on other systems, there are no SYCL objects, so none of these
// functions is called with a reference. They behave as without the library.

type ref = unsafe.Pointer

type rootRow struct {
	device, context, queue ref
	filter                 string
}

func loadLibrary(context.Context, string) (*Library, []Attempt, error) {
	err := &OpError{Op: "Open", Kind: ErrUnsupported}
	return nil, []Attempt{{Source: "build", Err: err}}, err
}

func tableOpen() Code                                  { return ErrUnsupported }
func tableClose()                                      {}
func cpuQueues() string                                { return "" }
func rootAt(int) (rootRow, bool)                       { return rootRow{}, false }
func copyRef(refSort, ref) ref                         { return nil }
func deleteRef(refSort, ref)                           {}
func equalRefs(_ refSort, a, b ref) bool               { return a == b }
func (*Device) describe()                              {}
func devicePlatform(ref) ref                           { return nil }
func deviceDefault() ref                               { return nil }
func deviceSelect(string) (ref, Code)                  { return nil, ErrUnsupported }
func describePlatform(ref) PlatformInfo                { return PlatformInfo{} }
func contextNew([]ref) (ref, Code)                     { return nil, ErrUnsupported }
func contextDevices(ref) ([]ref, Code)                 { return nil, ErrUnsupported }
func queueNew(_, _ ref, _, _ bool) (ref, Code)         { return nil, ErrUnsupported }
func queueHash(ref) uint64                             { return 0 }
func (*Queue) describe() (_, _ ref, _ Code)            { return nil, nil, ErrUnsupported }
func eventWait(ref) Code                               { return ErrUnsupported }
func eventDone(ref) bool                               { return true }
func eventStateOf(ref) eventState                      { return eventComplete }
func eventProfile(ref) ([3]uint64, Code)               { return [3]uint64{}, ErrUnsupported }
func submitWork(ref, *work, []ref) (ref, Code)         { return nil, ErrUnsupported }
func usmFree(ref, unsafe.Pointer) Code                 { return ErrUnsupported }
func placeNew(ref, USMKind) (unsafe.Pointer, Code)     { return nil, ErrUnsupported }
func placeRelease(unsafe.Pointer)                      {}
func placeIdentity(unsafe.Pointer) (uint32, uint64)    { return 0, 0 }
func describePlace(unsafe.Pointer) *Place              { return hostPlace }
func liveRefs() (none [sortCount]int64)                { return none }
func deviceSplit(ref, []uint, uint, int) ([]ref, Code) { return nil, ErrUnsupported }

func usmAlloc(ref, uint32, USMKind, uintptr, uintptr) (unsafe.Pointer, Code) {
	return nil, ErrUnsupported
}

func placeFor(_, _ ref, _, _ uintptr) (unsafe.Pointer, Code) { return nil, ErrUnsupported }

func placeIn(_, _ ref, _, _ uintptr) (unsafe.Pointer, Code) { return nil, ErrUnsupported }

func placeForDLPack(int32, uintptr, uintptr) (unsafe.Pointer, Code) {
	return nil, ErrUnsupported
}

func programNew(*made) (ref, Code)           { return nil, ErrUnsupported }
func kernelNew(ref, string) (ref, int, Code) { return nil, 0, ErrUnsupported }
func workLimitsOf(ref) workLimits            { return workLimits{} }
func rawArgs() bool                          { return false }
func launchKernel(ref, ref, *launch, []unsafe.Pointer) (ref, Code) {
	return nil, ErrUnsupported
}

// clProgram is a program that OpenCL itself built or refused.
type clProgram struct{}

func clBuild(*made, string) clProgram         { return clProgram{} }
func (clProgram) free()                       {}
func (clProgram) result() int                 { return clNoLoader }
func (clProgram) code() int                   { return 0 }
func (clProgram) why() string                 { return ErrUnsupported.Error() }
func (clProgram) log() string                 { return "" }
func (clProgram) kernels() []string           { return nil }
func (clProgram) params(string) []KernelParam { return nil }

// ConfigureOpenCL does nothing without SYCL.
func ConfigureOpenCL(string) (string, error) { return "none: SYCL needs Linux and cgo", nil }
