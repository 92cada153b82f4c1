//go:build cgo

package main

/*
#include <stdint.h>

static double call_energy(uintptr_t address, const double *start, int64_t count)
{
	return ((double (*)(const double *, int64_t))address)(start, count);
}
*/
import "C"

import "unsafe"

// callEnergy calls machine code that Numba compiled: double (const double *, int64_t). Other goroutines
// continue meanwhile, including those that hold the GIL.
func callEnergy(address uintptr, values []float64) (float64, error) {
	start := (*C.double)(unsafe.Pointer(unsafe.SliceData(values)))
	return float64(C.call_energy(C.uintptr_t(address), start, C.int64_t(len(values)))), nil
}
