//go:build cgo && linux

package main

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "umf.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"
)

// umfLibrary is libumf.so, the Unified Memory Framework. It is part of the Python package umf and of oneAPI's
// runtimes.
type umfLibrary struct{ lib *C.usmb_umf }

// openUMF loads libumf.so from the active virtual environment (VIRTUAL_ENV) or the loader's search path.
func openUMF() (*umfLibrary, error) {
	var tried []error
	for _, path := range []string{filepath.Join(os.Getenv("VIRTUAL_ENV"), "lib", "libumf.so.1"), "libumf.so.1"} {
		var reason [512]C.char
		name := C.CString(path)
		lib := C.usmb_umf_open(name, &reason[0], C.size_t(len(reason)))
		C.free(unsafe.Pointer(name))
		if lib != nil {
			return &umfLibrary{lib}, nil
		}
		tried = append(tried, errors.New(C.GoString(&reason[0])))
	}
	return nil, fmt.Errorf("no usable libumf.so; install one with pip install umf: %w", errors.Join(tried...))
}

// disjointParams are the parameters of UMF's disjoint pool.
type disjointParams struct {
	SlabMinSize     uintptr
	MaxPoolableSize uintptr
	Capacity        uintptr
	MinBucketSize   uintptr
	AddressOnly     bool // the provider counts and returns addresses without memory
}

// deviceParams returns the parameters that oneAPI's Unified Runtime uses for device memory.
func deviceParams() disjointParams {
	return disjointParams{SlabMinSize: 64 << 10, MaxPoolableSize: 4 << 20, Capacity: 4, MinBucketSize: 64}
}

// umfPool is a disjoint pool of UMF. It allocates host memory, because UMF has no provider for SYCL.
type umfPool struct{ pool *C.usmb_umf_pool }

func (l *umfLibrary) newDisjoint(p disjointParams) (*umfPool, error) {
	provider := C.int(C.USMB_UMF_OS)
	if p.AddressOnly {
		provider = C.USMB_UMF_COUNTING
	}
	var rc C.int
	pool := C.usmb_umf_pool_new(l.lib, provider, C.size_t(p.SlabMinSize), C.size_t(p.MaxPoolableSize),
		C.size_t(p.Capacity), C.size_t(p.MinBucketSize), &rc)
	if pool == nil {
		return nil, fmt.Errorf("umf: create a disjoint pool with %+v: UMF returned %d", p, int(rc))
	}
	return &umfPool{pool}, nil
}

// peak returns the largest number of bytes that an address-only pool had from its provider.
func (p *umfPool) peak() int64 { return int64(p.pool.peak) }

// close destroys the pool. No block may be in use.
func (p *umfPool) close() error {
	if rc := C.usmb_umf_pool_delete(p.pool); rc != 0 {
		return fmt.Errorf("umf: close a pool: UMF returned %d", int(rc))
	}
	return nil
}
