package transfer

import (
	"context"
	"errors"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// ringSlots is the maximum number of slots. The slots and the scratch memory of all goroutines take
// less than 16 MiB.
const ringSlots = 12

// Measured limit on an OpenCL CPU device: the driver copies on the same cores that read the file, at the
// speed of one thread (4.4 to 4.7 GB/s, 0.21 s of CPU time for each GB; the same for 1 and for 12 pieces
// in flight, and for pieces of 1 and 4 MiB). Reading from the page cache has the same cost. Without idle
// cores, a transfer through the ring therefore reaches at most half the speed of plain reads.

// ring is the host memory through which elements are copied to or from a device, in slots of PieceBytes.
// A slot is reused when its copy has completed.
type ring struct {
	q     *syclobj.Queue // nil if the host can read the memory
	slots []*slot
	free  chan *slot
}

type slot struct {
	buf   memmgr.Buffer
	bytes []byte
	event *syclobj.Event // of the copy in flight; nil if there is none
	to    memmgr.Buffer  // destination of that copy
}

// newRing allocates up to n slots for transfers with memory at place, in host USM if the device supports
// it. Only the first allocation waits for memory, because a call must not wait for memory that it holds
// itself. If a later allocation fails for lack of memory, the ring has fewer than n slots.
func newRing(ctx context.Context, place *syclobj.Place, n int) (*ring, error) {
	g := &ring{free: make(chan *slot, n)}
	if !place.HostReadable() {
		q, err := place.Queue()
		if err != nil {
			return nil, err
		}
		g.q = q
	}
	from := g.q
	if from != nil && !from.Device().Supports(syclobj.USMHost) {
		from = nil
	}
	r, err := memmgr.Default(from, syclobj.USMHost)
	if err != nil {
		return nil, err
	}
	wait := ending(ctx)
	for i := range n {
		buf, err := memmgr.New(r, memmgr.Request{Size: PieceBytes, Tag: "file transfer", Context: wait})
		if i > 0 && errors.Is(err, memmgr.ErrOutOfMemory) {
			break
		}
		wait = nil
		if err != nil {
			g.release()
			return nil, err
		}
		b, err := buf.Bytes()
		if err != nil {
			buf.Release()
			g.release()
			return nil, err
		}
		s := &slot{buf: buf, bytes: b[:PieceBytes]}
		g.slots = append(g.slots, s)
		g.free <- s
	}
	return g, nil
}

// take waits for a free slot, and for its last copy.
func (g *ring) take(ctx context.Context) (*slot, error) {
	select {
	case s := <-g.free:
		return s, s.settle(ctx)
	case <-ctx.Done():
		return nil, operr.Ended(ctx)
	}
}

func (g *ring) give(s *slot) { g.free <- s }

// settle waits for the copy of a slot. If the context ends first, the slot keeps the event.
func (s *slot) settle(ctx context.Context) error {
	if s.event == nil {
		return operr.Ended(ctx)
	}
	err := s.event.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return err
	}
	_ = s.event.Close()
	s.event = nil
	return err
}

// upload submits a copy from a slot to device memory.
func (g *ring) upload(s *slot, buf memmgr.Buffer, to unsafe.Pointer, n uintptr) error {
	ev, err := g.q.Memcpy(to, unsafe.Pointer(unsafe.SliceData(s.bytes)), n)
	if err != nil {
		return err
	}
	s.event, s.to = ev, buf
	return nil
}

// download copies device memory to a slot and waits for the copy.
func (g *ring) download(ctx context.Context, s *slot, buf memmgr.Buffer, from unsafe.Pointer, n uintptr) error {
	ev, err := g.q.Memcpy(unsafe.Pointer(unsafe.SliceData(s.bytes)), from, n)
	if err != nil {
		return err
	}
	s.event, s.to = ev, buf
	return s.settle(ctx)
}

// wait waits for all copies.
func (g *ring) wait(ctx context.Context) error {
	for _, s := range g.slots {
		if s.event == nil {
			continue
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// abandon makes copies in flight pending work of their buffers, so that their memory is not reused before
// the copies complete. Errors are ignored, because the call has failed already.
func (g *ring) abandon() {
	for _, s := range g.slots {
		if s.event == nil {
			continue
		}
		_ = s.buf.SetPending(g.q, s.event)
		_ = s.to.SetPending(g.q, s.event)
		_ = s.event.Close()
		s.event = nil
	}
}

// release releases the memory of the slots.
func (g *ring) release() {
	for _, s := range g.slots {
		s.buf.Release()
	}
}
