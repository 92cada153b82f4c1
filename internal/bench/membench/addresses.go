//go:build cgo && linux

package main

import (
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// addresses is an upstream that returns addresses without memory. Its calls are cheap, so a measurement shows the
// cost of the pool.
type addresses struct{ next atomic.Uintptr }

// newAddresses starts at an address range that the process does not use.
func newAddresses() *addresses {
	a := &addresses{}
	a.next.Store(1 << 44)
	return a
}

// AddressOnly tells the pool that the addresses must not be read or written.
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
