// Package region is the registry of clients' system shared memory.
package region

import (
	"github.com/usmbridge/usmbridge/examples/service/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Registry knows the regions that clients have registered.
type Registry struct{}

// Acquire lends a range of a region, in bytes, until Lease.Release.
func (r *Registry) Acquire(name string, _, _ uint64, _ bool) (*Lease, error) {
	return nil, oip.Errorf(oip.NotFound, "no region %s is registered", oip.Quote(name))
}

// Lease is a range of a region in use.
type Lease struct{ buffer memmgr.Buffer }

// Buffer is the memory of exactly that range, borrowed: it lives until Release.
func (l *Lease) Buffer() memmgr.Buffer { return l.buffer }

// Err tells whether the memory is still there.
func (l *Lease) Err() error { return nil }

// Release gives the range back.
func (l *Lease) Release() {}
