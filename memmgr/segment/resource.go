package segment

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Resource is a [memmgr.Resource] of memory that other processes can map. Each allocation is a
// segment of its own, which costs a descriptor, one or two mappings and tens of microseconds: put a
// [memmgr.Pool] above the Resource. All memory of a Resource has one audience, because a peer can
// access the whole segment.
//
// A Resource is safe for concurrent use. Close it after use.
type Resource struct {
	audience Audience
	// populate reserves the pages of each segment when it is made, so that running out of memory
	// is an error of Allocate. It is set where the system does not overcommit memory. Elsewhere
	// it would not help: the system ends a process instead of returning an error.
	populate bool
	usm      memmgr.Resource // upstream of the segments; nil for host memory
	handles  bool            // peers open segments by handles of the driver, not by files
	place    *syclobj.Place
	closed   atomic.Bool
	blocks   atomic.Int64
	bytes    atomic.Int64
}

// NewHost returns a resource of segments in host memory. New segments are zero. NewHost fails with
// errors.ErrUnsupported and a reason if the system does not support such memory.
func NewHost(a Audience) (*Resource, error) {
	const op = "NewHost"
	r, err := newResource(op, a)
	if err == nil {
		err = tryFile(op, a)
	}
	if err != nil {
		return nil, err
	}
	r.place = syclobj.HostPlace()
	return r, nil
}

func newResource(op string, a Audience) (*Resource, error) {
	if err := a.check(op); err != nil {
		return nil, err
	}
	return &Resource{audience: a, populate: strictOvercommit()}, nil
}

// tryFile checks that the system can make and seal memory files for an audience.
func tryFile(op string, a Audience) error {
	fd, err := createFile(sysmem.PageSize)
	if err == nil {
		err = sealFile(fd, a.seals())
		closeFile(fd)
	}
	return failed(op, err)
}

// failed wraps err in an OpError unless it is nil or one already.
func failed(op string, err error) error {
	if own := (*OpError)(nil); err == nil || errors.As(err, &own) {
		return err
	}
	return &OpError{Op: op, Err: err}
}

// Audience returns the access that peers have to the memory.
func (r *Resource) Audience() Audience { return r.audience }

// Interprocess reports that other processes can access the memory.
func (r *Resource) Interprocess() bool { return true }

// Place implements [memmgr.Resource].
func (r *Resource) Place() *syclobj.Place { return r.place }

// Upstream returns the resource that the segments' USM is allocated from, or nil for host memory.
func (r *Resource) Upstream() memmgr.Resource { return r.usm }

// InUse returns the number and the bytes of the segments that are allocated.
func (r *Resource) InUse() (blocks, bytes int64) { return r.blocks.Load(), r.bytes.Load() }

// Close implements io.Closer. Allocate fails afterwards. Allocated segments stay valid and must
// still be freed. Further calls do nothing.
func (r *Resource) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	return memmgr.Close(r.usm)
}

// Allocate implements [memmgr.Resource]. Size and alignment are rounded up to whole pages. Host
// memory is zero.
func (r *Resource) Allocate(request memmgr.Request) (memmgr.Block, error) {
	const op = "Resource.Allocate"
	if err := request.Check(); err != nil {
		return memmgr.Block{}, err
	}
	if r.closed.Load() {
		return memmgr.Block{}, opError(op, memmgr.ErrClosed, "the resource is closed")
	}
	whole := sysmem.PageSize
	if r.handles {
		whole = devicePage
	}
	size := sysmem.RoundUp(max(request.Size, 1), whole)
	s, err := r.newSegment(size, max(request.Alignment(), whole))
	if err != nil {
		if ranOut(err) {
			return memmgr.Block{}, &memmgr.OutOfMemoryError{Request: request, Place: r.place, Rounded: uint64(size), Err: failed(op, err)}
		}
		return memmgr.Block{}, failed(op, err)
	}
	live.add(s)
	r.blocks.Add(1)
	r.bytes.Add(int64(size))
	return memmgr.Block{
		Address: s.region.base, Size: size, Requested: request.Size, Align: request.Alignment(),
	}, nil
}

// newSegment makes a segment and does not publish it in live. If it fails, it releases everything.
func (r *Resource) newSegment(size, align uintptr) (s *record, err error) {
	c := r.cost()
	if err := spent.take("Resource.Allocate", c); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			spent.giveBack(c)
		}
	}()
	s = &record{audience: r.audience, of: r, fd: -1}
	_, _ = rand.Read(s.id[:]) // never fails
	if r.handles {
		s.region, err = newHandleRegion(r.usm, size, align)
		return s, err
	}
	fd, err := createFile(size)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeFile(fd)
		}
	}()
	if r.populate {
		if err := takePages(fd, size); err != nil {
			return nil, err
		}
	}
	at, err := newRegion(r.usm, size, align)
	if err != nil {
		return nil, err
	}
	// Map before sealing: F_SEAL_FUTURE_WRITE forbids new writable mappings and keeps this one.
	if err = at.cover(fd, false); err == nil {
		err = sealFile(fd, r.audience.seals())
	}
	if err != nil {
		if !at.end() {
			c.mappings = 0 // still mapped, so still counted
		}
		return nil, err
	}
	s.region, s.fd = at, fd
	return s, nil
}

// cost returns the cost of each segment.
func (r *Resource) cost() cost {
	if r.handles {
		return cost{} // allocated by the driver, without a mapping or descriptor of this package
	}
	return cost{mappings: mappingsOf(r.usm), descriptors: 1}
}

// devicePage is the unit of size and alignment of segments with handles, in bytes. A peer can
// access whole pages of the device, so no other allocation may share a page with a segment. 2 MiB
// is the size of a large page of GPUs.
const devicePage = 2 << 20

// Free implements [memmgr.Resource]. Mappings of peers stay valid. The system frees the pages with
// the last mapping.
func (r *Resource) Free(b memmgr.Block) {
	events, _ := memmgr.As[memmgr.Synchronizer](r)
	memmgr.FreeAfter(b, events, r.end)
}

func (r *Resource) end(b memmgr.Block) {
	s := live.remove(b.Address, r)
	if s == nil {
		panic(&memmgr.UseError{Op: "segment.Resource.Free", Err: fmt.Errorf(
			"%w: %d bytes at %#x: not a segment of this resource, or already freed", memmgr.ErrReleased, b.Size, b.Address)})
	}
	s.mu.Lock()
	if s.freed = true; s.fd >= 0 {
		closeFile(s.fd)
	}
	s.mu.Unlock()
	c := r.cost()
	if !s.region.end() {
		c.mappings = 0 // still mapped, so still counted
	}
	spent.giveBack(c)
	r.blocks.Add(-1)
	r.bytes.Add(-int64(s.region.size))
}

// Discard implements [memmgr.Discarder]. It returns the pages to the system for every process that
// maps them. They are zero at their next access. The caller makes sure that no buffer, and so no
// peer, uses the memory. Discard fails with errors.ErrUnsupported for an audience of [PeersRead],
// where the seals forbid it, for memory with handles, and where the system does not overcommit
// memory (vm.overcommit_memory is 2).
func (r *Resource) Discard(address, size uintptr) error {
	const op = "Resource.Discard"
	switch {
	case r.audience != PeersWrite:
		return opError(op, errors.ErrUnsupported, "the seals for %q forbid it", r.audience)
	case r.handles:
		return opError(op, errors.ErrUnsupported, "%v is not in pages of the process", r.place)
	case r.populate:
		return opError(op, errors.ErrUnsupported, "vm.overcommit_memory is 2, so discarded pages may not be available again")
	}
	s, offset, ok := Find(address, uint64(size))
	if !ok || s.r.of != r {
		return opError(op, memmgr.ErrRequest, "%d bytes at %#x: not memory of this resource", size, address)
	}
	if err := s.lock(op); err != nil {
		return err
	}
	defer s.r.mu.Unlock()
	return failed(op, dropPages(s.r.fd, offset, uint64(size)))
}
