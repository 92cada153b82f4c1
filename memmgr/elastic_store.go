package memmgr

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/internal/owner"
)

// sleepStore keeps the contents of memory that sleeps.
type sleepStore interface {
	io.WriterAt
	io.ReaderAt
	// sync returns when what was written will be found again.
	sync() error
	// end lets go of what the store holds.
	end()
}

// callersStore is what the caller named.
type callersStore struct {
	to interface {
		io.WriterAt
		io.ReaderAt
	}
}

func (s callersStore) WriteAt(b []byte, at int64) (int, error) { return s.to.WriteAt(b, at) }
func (s callersStore) ReadAt(b []byte, at int64) (int, error)  { return s.to.ReadAt(b, at) }
func (s callersStore) end()                                    {}

func (s callersStore) sync() error {
	if to, ok := s.to.(interface{ Sync() error }); ok {
		return to.Sync()
	}
	return nil
}

// storeChunk is the portion in which contents move.
const storeChunk = 4 << 20

// memoryStore keeps contents in chunks of a resource's memory.
type memoryStore struct {
	from   Resource
	ctx    context.Context
	chunks []Buffer
}

func newMemoryStore(from Resource, ctx context.Context) *memoryStore {
	return &memoryStore{from: from, ctx: ctx}
}

// parts calls f for each chunk that a range touches.
func (s *memoryStore) parts(b []byte, at int64, f func(chunk Buffer, offset int, part []byte) error) (n int, err error) {
	for n < len(b) {
		k, offset := int((at+int64(n))/storeChunk), int((at+int64(n))%storeChunk)
		if k >= len(s.chunks) {
			return n, io.EOF
		}
		part := b[n:min(len(b), n+storeChunk-offset)]
		if err := f(s.chunks[k], offset, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (s *memoryStore) WriteAt(b []byte, at int64) (int, error) {
	for int64(len(s.chunks))*storeChunk < at+int64(len(b)) {
		chunk, err := New(s.from, Request{Size: storeChunk, Tag: "asleep", Context: s.ctx})
		if err != nil {
			return 0, err
		}
		s.chunks = append(s.chunks, chunk)
	}
	return s.parts(b, at, func(chunk Buffer, offset int, part []byte) error { return CopyIn(chunk, offset, part) })
}

func (s *memoryStore) ReadAt(b []byte, at int64) (int, error) {
	return s.parts(b, at, func(chunk Buffer, offset int, part []byte) error { return CopyOut(chunk, offset, part) })
}

func (s *memoryStore) sync() error { return nil }

func (s *memoryStore) end() {
	for _, chunk := range s.chunks {
		chunk.Release()
	}
	s.chunks = nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// window reads and writes memory in portions: in place where the host may, else
// through the place's queue.
type window struct {
	p       *Pool
	staging []byte
}

// portions calls f for each portion of a block's part.
func (b *sleeper) portions(f func(at uintptr, n int, from int64) error) error {
	for done := uintptr(0); done < b.bytes; {
		n := min(b.bytes-done, storeChunk)
		if err := f(b.from+done, int(n), b.at+int64(done)); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// bytes is memory that is to be read, or with fill the place for what is to be
// written by put.
func (w *window) bytes(at uintptr, n int, fill bool) ([]byte, error) {
	if w.p.flags&owner.HostReadable != 0 {
		return unsafe.Slice((*byte)(foreignPointer(at)), n), nil
	}
	if w.staging == nil {
		w.staging = make([]byte, storeChunk)
	}
	if fill {
		return w.staging[:n], nil
	}
	q, err := w.p.Place().Queue()
	if err != nil {
		return nil, err
	}
	return w.staging[:n], q.Read(w.staging[:n], foreignPointer(at))
}

// put writes what bytes gave to be filled.
func (w *window) put(at uintptr, data []byte) error {
	if w.p.flags&owner.HostReadable != 0 {
		return nil
	}
	q, err := w.p.Place().Queue()
	if err != nil {
		return err
	}
	return q.Write(foreignPointer(at), data)
}

// save writes the contents of what goes back to the store.
func (p *Pool) save(s *slumber, ctx context.Context) error {
	w := window{p: p}
	for _, b := range s.blocks {
		b.sum = 0
		err := b.portions(func(at uintptr, n int, to int64) error {
			if ended(ctx) {
				return ctx.Err()
			}
			data, err := w.bytes(at, n, false)
			if err != nil {
				return err
			}
			b.sum = crc32.Update(b.sum, castagnoli, data)
			written, err := s.store.WriteAt(data, to)
			if err == nil && written != n {
				err = io.ErrShortWrite
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("saving %s at %#x: %w", bytesText(uint64(b.bytes)), b.from, err)
		}
	}
	if err := s.store.sync(); err != nil {
		return fmt.Errorf("saving: %w", err)
	}
	return nil
}

var errNotSaved = errors.New("the store holds other bytes than were saved")

// restore reads the contents back, of what no user has released.
func (p *Pool) restore(s *slumber) error {
	if s.store == nil {
		return nil
	}
	w := window{p: p}
	for _, b := range s.blocks {
		sum := uint32(0)
		err := b.portions(func(at uintptr, n int, from int64) error {
			data, err := w.bytes(at, n, true)
			if err != nil {
				return err
			}
			read, err := s.store.ReadAt(data, from)
			if read == n {
				err = nil // io.EOF may come with the last bytes
			} else if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return err
			}
			sum = crc32.Update(sum, castagnoli, data)
			return w.put(at, data)
		})
		if err == nil && sum != b.sum {
			err = errNotSaved
		}
		if err != nil {
			return fmt.Errorf("restoring %s at %#x: %w", bytesText(uint64(b.bytes)), b.from, err)
		}
	}
	return nil
}

// sleepGrace is how long work may last without a context to wait with: a barrier
// takes a moment even when nothing is pending.
const sleepGrace = 10 * time.Millisecond

// awaitWork waits for work on blocks that are about to sleep: what was recorded as
// pending, and what comes before a barrier on the queues that they were used on.
func (p *Pool) awaitWork(s *slumber, o *SleepOptions) error {
	ctx := o.Context
	if ctx == nil {
		short, cancel := context.WithTimeout(context.Background(), sleepGrace)
		defer cancel()
		ctx = short
	}
	queues := map[uintptr]bool{}
	for _, b := range s.blocks {
		c := b.ref.Cell()
		if q := c.Queue(); q != 0 || c.Flags()&owner.Exported != 0 {
			queues[q] = true
		}
		for _, q := range formerQueues(c) {
			queues[q] = true
		}
		event, err := copyPendingOf(c, p.sync)
		if err != nil {
			return p.notYet(o, err)
		}
		if event == 0 {
			continue
		}
		err = waitWithin(ctx, p.sync, event)
		p.sync.ReleaseEvent(event)
		if err != nil {
			return p.notYet(o, err)
		}
	}
	if p.origin.sync == nil {
		return nil
	}
	for q := range queues {
		event, err := p.sync.Barrier(q)
		if err != nil {
			return p.sleepError("Pool.Sleep", err)
		}
		if event == 0 {
			continue
		}
		err = waitWithin(ctx, p.sync, event)
		p.sync.ReleaseEvent(event)
		if err != nil {
			return p.notYet(o, err)
		}
	}
	return nil
}

func (p *Pool) notYet(o *SleepOptions, err error) error {
	if o.Context == nil && errors.Is(err, context.DeadlineExceeded) {
		return p.refuseSleep(ErrInUse, "work is pending on the memory; wait for it, or give a Context to wait with")
	}
	if o.Context != nil && ended(o.Context) {
		return p.refuseSleep(ErrInUse, "work is pending on the memory: %w", err)
	}
	return p.sleepError("Pool.Sleep", err)
}

// copyPendingOf returns an owned reference of the event that a cell waits for, 0 for none.
func copyPendingOf(c *owner.Cell, s Synchronizer) (uintptr, error) {
	if c.Pending() == 0 {
		return 0, nil
	}
	c.HoldPending()
	defer c.LetPending()
	event := c.Pending()
	if event == 0 {
		return 0, nil
	}
	if own := s.CopyEvent(event); own != 0 {
		return own, nil
	}
	return 0, errNoReference
}

// waitWithin waits until an event is done or the context ends, and returns the
// failure of the work.
func waitWithin(ctx context.Context, s Synchronizer, event uintptr) error {
	for pause := shortPoll; !s.EventDone(event); pause = min(2*pause, longPoll) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
	return s.WaitEvent(event)
}
