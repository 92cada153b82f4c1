package flight

import (
	"context"

	"google.golang.org/grpc/mem"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Size of the host USM buffers through which device memory is copied, and the largest number
// of them that one stream uses at a time.
const (
	stageBytes  = 4 << 20
	stagePieces = 3
)

// stage copies device memory through pooled host USM.
type stage struct{ host memmgr.Resource }

// stageFor returns the stage for memory of a place, or nil if the host can access the memory. It
// uses the default pool of the context.
func stageFor(p *syclobj.Place) (*stage, error) {
	if p == nil || p.HostReadable() {
		return nil, nil
	}
	q, err := p.Queue()
	if err != nil {
		return nil, err
	}
	r, err := memmgr.Default(q, syclobj.USMHost)
	if err != nil {
		return nil, err
	}
	return &stage{host: r}, nil
}

// piece allocates n bytes of host USM.
func (s *stage) piece(ctx context.Context, n int) (memmgr.Buffer, []byte, error) {
	b, err := memmgr.New(s.host, memmgr.Request{Size: uintptr(n), Tag: "flight stage", Context: ctx})
	if err != nil {
		return b, nil, err
	}
	data, err := b.Bytes()
	if err != nil {
		b.Release()
		return memmgr.Buffer{}, nil, err
	}
	return b, data[:n], nil
}

// receive reads n bytes of a message into device memory, one buffer at a time.
func (s *stage) receive(ctx context.Context, in *codec.Incoming, to memmgr.Buffer, at, n int) error {
	if n == 0 {
		return nil
	}
	b, data, err := s.piece(ctx, min(n, stageBytes))
	if err != nil {
		return err
	}
	defer b.Release()
	for n > 0 {
		k := min(n, len(data))
		if err := in.ReadFull(data[:k]); err != nil {
			return err
		}
		if err := memmgr.CopyBuffer(to, uint64(at), b, 0, uint64(k)); err != nil {
			return err
		}
		at += k
		n -= k
	}
	return nil
}

// send returns n bytes of device memory as a buffer for a message, copied to host USM. It waits
// until fewer than stagePieces buffers of the stream are in use.
func (s *stage) send(ctx context.Context, leases *codec.Leases, from memmgr.Buffer, at, n int) (mem.Buffer, []byte, error) {
	if err := leases.WaitBelow(ctx, stagePieces); err != nil {
		return nil, nil, err
	}
	b, data, err := s.piece(ctx, n)
	if err != nil {
		return nil, nil, err
	}
	defer b.Release()
	if err := memmgr.CopyBuffer(b, 0, from, uint64(at), uint64(n)); err != nil {
		return nil, nil, err
	}
	return leases.Memory(b, data), data, nil
}
