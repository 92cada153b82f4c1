//go:build cgo && linux

package umf

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "umf.h"

static void *usmb_umf_do_malloc(usmb_umf_pool *p, size_t size, size_t align)
{
	return align <= 8 ? p->lib->pool_malloc(p->pool, size) : p->lib->pool_aligned_malloc(p->pool, size, align);
}

static int usmb_umf_do_free(usmb_umf_pool *p, void *m)
{
	return p->lib->pool_free(p->pool, m);
}

static unsigned usmb_umf_do_version(usmb_umf *u)
{
	return u->version();
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/elfcheck"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Library is a loaded libumf.so.
type Library struct {
	lib  *C.usmb_umf
	path string
}

// Open loads the first usable libumf.so of the given paths. Without paths it tries the active virtual
// environment (VIRTUAL_ENV), and then the loader's search path. Its error lists every file tried.
func Open(paths ...string) (*Library, error) {
	if len(paths) == 0 {
		if env := os.Getenv("VIRTUAL_ENV"); env != "" {
			paths = append(paths, filepath.Join(env, "lib", "libumf.so.1"), filepath.Join(env, "lib", "libumf.so"))
		}
		paths = append(paths, "libumf.so.1", "libumf.so")
	}
	var tried []string
	for _, path := range paths {
		if strings.Contains(path, "/") {
			if err := elfcheck.File(path); err != nil {
				tried = append(tried, fmt.Sprintf("%s: %v", path, err))
				continue
			}
		}
		var reason [512]C.char
		name := C.CString(path)
		lib := C.usmb_umf_open(name, &reason[0], C.size_t(len(reason)))
		C.free(unsafe.Pointer(name))
		if lib != nil {
			return &Library{lib: lib, path: path}, nil
		}
		tried = append(tried, path+": "+C.GoString(&reason[0]))
	}
	return nil, fmt.Errorf("umf: no usable libumf.so; install one with pip install umf: %s", strings.Join(tried, "; "))
}

// Path returns the file that was loaded.
func (l *Library) Path() string { return l.path }

// Version returns the library's version, such as "1.2".
func (l *Library) Version() string {
	v := uint32(C.usmb_umf_do_version(l.lib))
	return fmt.Sprintf("%d.%d", v>>16, v&0xffff)
}

// DisjointParams are the parameters of UMF's disjoint pool.
type DisjointParams struct {
	SlabMinSize     uintptr
	MaxPoolableSize uintptr
	Capacity        uintptr
	MinBucketSize   uintptr
	// AddressOnly puts the pool over a provider of addresses without memory, which only counts.
	AddressOnly bool
}

// DeviceParams returns the parameters that oneAPI's Unified Runtime uses for device memory.
func DeviceParams() DisjointParams {
	return DisjointParams{SlabMinSize: 64 << 10, MaxPoolableSize: 4 << 20, Capacity: 4, MinBucketSize: 64}
}

// errRefused is the cause in an out-of-memory error of a pool.
var errRefused = errors.New("UMF's pool returned no memory")

// Pool is a [memmgr.Resource] of a pool of UMF. It is safe for concurrent use, except Close.
type Pool struct {
	pool        *C.usmb_umf_pool
	addressOnly bool
	blocks      atomic.Int64
	bytes       atomic.Int64
}

// NewDisjoint makes a disjoint pool over memory of the system.
func (l *Library) NewDisjoint(p DisjointParams) (*Pool, error) {
	provider := C.int(C.USMB_UMF_OS)
	if p.AddressOnly {
		provider = C.USMB_UMF_COUNTING
	}
	var rc C.int
	pool := C.usmb_umf_pool_new(l.lib, 0, provider, C.size_t(p.SlabMinSize), C.size_t(p.MaxPoolableSize),
		C.size_t(p.Capacity), C.size_t(p.MinBucketSize), &rc)
	if pool == nil {
		return nil, fmt.Errorf("umf: make a disjoint pool with %+v: UMF returned %d", p, int(rc))
	}
	return &Pool{pool: pool, addressOnly: p.AddressOnly}, nil
}

// NewScalable makes a scalable pool (oneTBB's allocator) over memory of the
// system; it needs libtbbmalloc.
func (l *Library) NewScalable() (*Pool, error) {
	var rc C.int
	pool := C.usmb_umf_pool_new(l.lib, 1, C.USMB_UMF_OS, 0, 0, 0, 0, &rc)
	if pool == nil {
		return nil, fmt.Errorf("umf: make a scalable pool: UMF returned %d; install libtbbmalloc.so.2", int(rc))
	}
	return &Pool{pool: pool}, nil
}

// Handle returns the pool for C code that includes umf.h (usmb_umf_pool*).
func (p *Pool) Handle() unsafe.Pointer { return unsafe.Pointer(p.pool) }

// Provided returns the bytes that an address-only pool has from its provider, their peak, and the
// number of its requests. After Close it returns zeros.
func (p *Pool) Provided() (now, peak, calls int64) {
	if p.pool == nil {
		return 0, 0, 0
	}
	return int64(p.pool.bytes), int64(p.pool.peak), int64(p.pool.calls)
}

// AddressOnly reports whether the addresses have no memory.
func (p *Pool) AddressOnly() bool { return p.addressOnly }

// Place implements [memmgr.Resource].
func (*Pool) Place() *syclobj.Place { return syclobj.HostPlace() }

// InUse returns the number of blocks in use and their bytes.
func (p *Pool) InUse() (blocks, bytes int64) { return p.blocks.Load(), p.bytes.Load() }

// Allocate implements [memmgr.Resource].
func (p *Pool) Allocate(r memmgr.Request) (memmgr.Block, error) {
	if err := r.Check(); err != nil {
		return memmgr.Block{}, err
	}
	if p.pool == nil {
		return memmgr.Block{}, &memmgr.OpError{Op: "umf.Pool.Allocate", Err: memmgr.ErrClosed}
	}
	size := max(r.Size, 1)
	m := C.usmb_umf_do_malloc(p.pool, C.size_t(size), C.size_t(r.Alignment()))
	if m == nil {
		return memmgr.Block{}, &memmgr.OutOfMemoryError{Request: r, Place: p.Place(), Rounded: uint64(size), Err: errRefused}
	}
	p.blocks.Add(1)
	p.bytes.Add(int64(size))
	return memmgr.Block{Address: uintptr(m), Size: size, Requested: r.Size, Align: r.Alignment()}, nil
}

// Free implements [memmgr.Resource]. It waits for pending work, because UMF has no events.
func (p *Pool) Free(b memmgr.Block) {
	memmgr.FreeAfter(b, nil, func(b memmgr.Block) {
		if p.pool == nil {
			panic(&memmgr.UseError{Op: "umf.Pool.Free", Err: fmt.Errorf("%#x: %w", b.Address, memmgr.ErrClosed)})
		}
		if rc := C.usmb_umf_do_free(p.pool, *(*unsafe.Pointer)(unsafe.Pointer(&b.Address))); rc != 0 {
			panic(&memmgr.UseError{Op: "umf.Pool.Free", Err: fmt.Errorf("%#x: UMF returned %d", b.Address, int(rc))})
		}
		p.blocks.Add(-1)
		p.bytes.Add(-int64(b.Size))
	})
}

// Close destroys the pool. It fails if blocks are in use.
func (p *Pool) Close() error {
	if p.pool == nil {
		return nil
	}
	if n := p.blocks.Load(); n != 0 {
		return fmt.Errorf("umf: close a pool: %d blocks are in use", n)
	}
	rc := C.usmb_umf_pool_delete(p.pool)
	p.pool = nil
	if rc != 0 {
		return fmt.Errorf("umf: close a pool: UMF returned %d", int(rc))
	}
	return nil
}
