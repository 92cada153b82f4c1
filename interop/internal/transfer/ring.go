package transfer

import (
	"context"
	"errors"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// ringSlots of PieceBytes each, with the scratch of each goroutine, stay below 16 MiB.
const ringSlots = 12

// What bounds it, on an OpenCL CPU device: the driver's copy runs on the cores that read, at the
// speed of one thread's (4.4 to 4.7 GB/s, 0.21 s of CPU a GB, the same for one and for twelve
// pieces at a time of 1 or 4 MiB), which is what reading a GB from the page cache takes as well.
// So half of the speed of plain reads is the most that is to be had where there are no idle cores.

// ring is host memory on the way to or from a device, in slots of PieceBytes. A slot is used
// again when the copy from it is done.
type ring struct {
	q     *syclobj.Queue // nil where the host reads the memory itself
	slots []*slot
	free  chan *slot
}

type slot struct {
	buf   memmgr.Buffer
	bytes []byte
	event *syclobj.Event // of the copy from it; nil when there is none
	to    memmgr.Buffer  // of that copy
}

// newRing takes n slots for memory of a place: host USM where its device has that. It waits
// for room for the first alone, because a call must not wait for what it holds, and is
// content with fewer than n.
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

// take waits for a slot, and for the copy from it.
func (g *ring) take(ctx context.Context) (*slot, error) {
	select {
	case s := <-g.free:
		return s, s.settle(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (g *ring) give(s *slot) { g.free <- s }

// settle waits for the copy from a slot. When the context ends first the copy stays known.
func (s *slot) settle(ctx context.Context) error {
	if s.event == nil {
		return ctx.Err()
	}
	err := s.event.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		return err
	}
	_ = s.event.Close()
	s.event = nil
	return err
}

// upload submits the copy of a slot to device memory.
func (g *ring) upload(s *slot, buf memmgr.Buffer, to unsafe.Pointer, n uintptr) error {
	ev, err := g.q.Memcpy(to, unsafe.Pointer(unsafe.SliceData(s.bytes)), n)
	if err != nil {
		return err
	}
	s.event, s.to = ev, buf
	return nil
}

// download copies device memory to a slot, and waits.
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

// abandon leaves copies that are under way to the buffers, which wait for them before their
// memory is used again. The failure of an earlier copy is of no interest: the call failed.
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

// release gives the slots back.
func (g *ring) release() {
	for _, s := range g.slots {
		s.buf.Release()
	}
}
