package memmgr

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unsafe"
)

// sleepStore stores the contents of memory that sleeps: [SleepOptions].To, or a memoryStore.
type sleepStore interface {
	io.WriterAt
	io.ReaderAt
}

// memoryStore stores contents in chunks of memory of a resource, SleepOptions.Into.
type memoryStore struct {
	from   Resource
	ctx    context.Context
	chunks []Buffer
}

// parts calls f for the part of b in each chunk of the range that begins at an offset.
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

func (s *memoryStore) release() {
	for _, chunk := range s.chunks {
		chunk.Release()
	}
	s.chunks = nil
}

var (
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
	errNotSaved = errors.New("the store holds other bytes than were saved")
)

// save writes the contents of the pages of a group to its store.
func (s *sleep) save(g *sleepGroup, ctx context.Context) error {
	if g.store == nil {
		return nil
	}
	err := s.eachPortion(g, "saving", func(data []byte, address uintptr, offset int64) error {
		if ended(ctx) {
			return ctx.Err()
		}
		if !s.host {
			q, err := s.place.Queue()
			if err == nil {
				err = q.Read(data, foreignPointer(address))
			}
			if err != nil {
				return err
			}
		}
		written, err := g.store.WriteAt(data, offset)
		if err == nil && written != len(data) {
			err = io.ErrShortWrite
		}
		return err
	}, func(b *sleepingBlock, sum uint32) error {
		b.sum = sum
		return nil
	})
	if to, ok := g.store.(interface{ Sync() error }); ok && err == nil {
		if err = to.Sync(); err != nil {
			err = fmt.Errorf("saving: %w", err)
		}
	}
	return err
}

// restore reads the contents of the blocks of a group back from its store.
func (s *sleep) restore(g *sleepGroup) error {
	if g.store == nil {
		return nil
	}
	return s.eachPortion(g, "restoring", func(data []byte, address uintptr, offset int64) error {
		read, err := g.store.ReadAt(data, offset)
		if read == len(data) {
			err = nil // io.EOF may accompany the last bytes
		} else if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || s.host {
			return err
		}
		q, err := s.place.Queue()
		if err != nil {
			return err
		}
		return q.Write(foreignPointer(address), data)
	}, func(b *sleepingBlock, sum uint32) error {
		if sum != b.sum {
			return errNotSaved
		}
		return nil
	})
}

// eachPortion calls transfer for each portion of the pages of each block in a group, and then done
// with the checksum of the block's contents. data is the memory itself if the host may access it,
// else a staging buffer: transfer leaves the contents of the portion there.
func (s *sleep) eachPortion(g *sleepGroup, verb string,
	transfer func(data []byte, address uintptr, offset int64) error, done func(b *sleepingBlock, sum uint32) error,
) error {
	var staging []byte
	if !s.host {
		staging = make([]byte, storeChunk)
	}
	for _, b := range g.blocks {
		var err error
		sum := uint32(0)
		for at := uintptr(0); at < b.bytes && err == nil; at += storeChunk {
			n := min(b.bytes-at, storeChunk)
			data := staging
			if s.host {
				data = unsafe.Slice((*byte)(foreignPointer(b.from+at)), n)
			}
			err = transfer(data[:n], b.from+at, b.offset+int64(at))
			sum = crc32.Update(sum, castagnoli, data[:n])
		}
		if err == nil {
			err = done(b, sum)
		}
		if err != nil {
			return fmt.Errorf("%s %s at %#x: %w", verb, bytesText(uint64(b.bytes)), b.from, err)
		}
	}
	return nil
}
