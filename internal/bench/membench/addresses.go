//go:build cgo && linux

package main

import (
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// addresses is an upstream without memory: it costs next to nothing, so that
// a measurement shows the pool above it.
type addresses struct{ next atomic.Uintptr }

// newAddresses begins where no memory of the process lies.
func newAddresses() *addresses {
	a := &addresses{}
	a.next.Store(1 << 44)
	return a
}

// AddressOnly keeps everybody from reading or writing the memory.
func (*addresses) AddressOnly() bool { return true }

// Place implements memmgr.Resource.
func (*addresses) Place() *syclobj.Place { return syclobj.HostPlace() }

// Allocate implements memmgr.Resource.
func (a *addresses) Allocate(r memmgr.Request) (memmgr.Block, error) {
	size, align := max(r.Size, 1), max(r.Alignment(), 4096)
	at := (a.next.Add(size+align) - size) &^ (align - 1)
	return memmgr.Block{Address: at, Size: size, Requested: r.Size, Align: r.Alignment()}, nil
}

// Free implements memmgr.Resource.
func (*addresses) Free(memmgr.Block) {}
