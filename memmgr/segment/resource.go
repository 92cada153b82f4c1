package segment

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Resource gives memory that other processes can map, each allocation a segment of
// its own: a [memmgr.Resource], which a [memmgr.Pool] is put above, since a segment
// costs a descriptor, one or two mappings, and tens of microseconds. All memory of a
// Resource is for one audience, because a peer sees the whole segment.
//
// It is safe for concurrent use. Close it when it is not needed any more.
type Resource struct {
	audience Audience
	options  options
	usm      memmgr.Resource // what the segments lie over; nil: memory of the host
	handles  bool            // others open usm by handles of the driver, not by files
	place    *syclobj.Place
	closed   atomic.Bool
	blocks   atomic.Int64
	bytes    atomic.Int64
}

type options struct {
	most bounds
	// populate takes the pages of each segment when it is made: where the system promises
	// no more memory than it has, a page that it cannot give at the first touch ends the
	// process, and so running out is an error instead. Elsewhere it would not be: the
	// system kills somebody.
	populate bool
}

// Option adjusts a [Resource].
type Option func(*options)

// WithMaxMappings bounds the mappings that this package may hold in the whole process
// for the Resource to make one more: an allocation beyond it fails with kind ErrLimit.
// The default, and what 0 stands for, is half of vm.max_map_count.
func WithMaxMappings(n int) Option { return func(o *options) { o.most.mappings = n } }

// WithMaxDescriptors is the same for descriptors, of which each segment has one. The
// default is half of RLIMIT_NOFILE.
func WithMaxDescriptors(n int) Option { return func(o *options) { o.most.descriptors = n } }

// NewHost makes a resource of segments in memory of the host: zeroed pages. It
// fails with errors.ErrUnsupported, and says why, where the system has no such memory.
func NewHost(a Audience, o ...Option) (*Resource, error) {
	const op = "NewHost"
	r, err := newResource(op, a, o)
	if err == nil {
		err = tryFile(op, a)
	}
	if err != nil {
		return nil, err
	}
	r.place = syclobj.HostPlace()
	return r, nil
}

func newResource(op string, a Audience, o []Option) (*Resource, error) {
	if err := a.check(op); err != nil {
		return nil, err
	}
	r := &Resource{audience: a, options: options{populate: promisesAreKept()}}
	for _, option := range o {
		option(&r.options)
	}
	return r, nil
}

// tryFile tries what the system can do for an audience before anybody counts on it.
func tryFile(op string, a Audience) error {
	fd, err := createFile(pageSize)
	if err == nil {
		err = sealFile(fd, a.seals())
		closeFile(fd)
	}
	if err != nil {
		return failed(op, err)
	}
	return nil
}

// failed wraps what a system call or a trial said.
func failed(op string, err error) error {
	if own := (*OpError)(nil); errors.As(err, &own) {
		return err
	}
	return &OpError{Op: op, Err: err}
}

// Audience says what peers may do with the memory.
func (r *Resource) Audience() Audience { return r.audience }

// Place implements [memmgr.Resource].
func (r *Resource) Place() *syclobj.Place { return r.place }

// Upstream returns the resource of the USM that the segments lie over; nil for memory
// of the host.
func (r *Resource) Upstream() memmgr.Resource { return r.usm }

// InUse returns the segments and bytes given out and not yet back.
func (r *Resource) InUse() (blocks, bytes int64) { return r.blocks.Load(), r.bytes.Load() }

// Close implements io.Closer: Allocate fails afterwards. What was given out stays
// valid, and is freed as before. Close may be called again.
func (r *Resource) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	if c, ok := r.usm.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

// Allocate implements [memmgr.Resource]. Size and alignment are raised to whole pages;
// memory of the host is zero.
func (r *Resource) Allocate(request memmgr.Request) (memmgr.Block, error) {
	const op = "Resource.Allocate"
	if err := request.Check(); err != nil {
		return memmgr.Block{}, err
	}
	if r.closed.Load() {
		return memmgr.Block{}, opError(op, memmgr.ErrClosed, "make another one")
	}
	whole := pageSize
	if r.handles {
		whole = devicePage
	}
	size := roundUp(max(request.Size, 1), whole)
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

// newSegment makes a segment that nobody can find yet. On failure nothing stays.
func (r *Resource) newSegment(size, align uintptr) (s *record, err error) {
	c := r.cost()
	if err := spent.take("Resource.Allocate", c, r.options.most.filled()); err != nil {
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
		s.region, err = newRegion(r.usm, size, align)
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
	if r.options.populate {
		if err := takePages(fd, size); err != nil {
			return nil, err
		}
	}
	at, err := newRegion(r.usm, size, align)
	if err != nil {
		return nil, err
	}
	// The mapping comes before the seals: FUTURE_WRITE lets it stay writable.
	if err = at.cover(fd, false); err == nil {
		err = sealFile(fd, r.audience.seals())
	}
	if err != nil {
		if !at.end() {
			c.mappings = 0 // they stay
		}
		return nil, err
	}
	s.region, s.fd = at, fd
	return s, nil
}

// cost is what each segment takes.
func (r *Resource) cost() cost {
	if r.handles {
		return cost{} // the driver's own affair
	}
	return cost{mappings: mappingsOf(r.usm), descriptors: 1}
}

// devicePage is what segments of a driver's device memory are multiples of: a peer sees
// whole pages, and this is the size of a GPU's large ones.
const devicePage = 2 << 20

// Free implements [memmgr.Resource]. Peers that mapped the segment keep the memory; the
// system takes it back with the last of them.
func (r *Resource) Free(b memmgr.Block) {
	events, _ := memmgr.As[memmgr.Synchronizer](r)
	memmgr.FreeAfter(b, events, r.end)
}

func (r *Resource) end(b memmgr.Block) {
	s := live.remove(b.Address, r)
	if s == nil {
		panic(&memmgr.UseError{Op: "segment.Resource.Free", Err: fmt.Errorf(
			"%w: %d bytes at %#x are no segment of this resource, or were freed before", memmgr.ErrReleased, b.Size, b.Address)})
	}
	s.mu.Lock()
	if s.gone = true; s.fd >= 0 {
		closeFile(s.fd)
	}
	s.mu.Unlock()
	c := r.cost()
	if !s.region.end() {
		c.mappings = 0 // they stay
	}
	spent.giveBack(c)
	r.blocks.Add(-1)
	r.bytes.Add(-int64(s.region.size))
}

// Discard implements [memmgr.Discarder]: the pages go back to the system, in every
// process that maps them, and are zero when they are next touched. A pool does so with
// memory that nobody refers to, which no peer has a handle of either. The memory of
// PeersRead, whose seals forbid it to everybody, keeps its pages, as does memory where
// vm.overcommit_memory is 2: the error wraps errors.ErrUnsupported.
func (r *Resource) Discard(address, size uintptr) error {
	const op = "Resource.Discard"
	switch {
	case r.audience != PeersWrite:
		return opError(op, errors.ErrUnsupported, "the seals of %q keep the pages", r.audience)
	case r.handles:
		return opError(op, errors.ErrUnsupported, "%v has no pages of the process", r.place)
	case r.options.populate:
		return opError(op, errors.ErrUnsupported, "vm.overcommit_memory is 2, and pages that go might not come back")
	}
	s, offset, ok := Find(address, uint64(size))
	if !ok || s.r.of != r {
		return opError(op, memmgr.ErrRequest, "%d bytes at %#x are no memory of this resource", size, address)
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.gone {
		return s.r.freed(op)
	}
	if err := dropPages(s.r.fd, offset, uint64(size)); err != nil {
		return failed(op, err)
	}
	return nil
}

var pageSize = uintptr(os.Getpagesize())

// roundUp rounds to a multiple of a power of two.
func roundUp(n, unit uintptr) uintptr { return (n + unit - 1) &^ (unit - 1) }
