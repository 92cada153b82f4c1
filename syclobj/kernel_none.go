//go:build !linux || !cgo

package syclobj

import "unsafe"

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
