package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// ErrNotRegular says that a path names no regular file.
var ErrNotRegular = errors.New("not a regular file")

// Source is bytes by position, and how many there are. It may be used from several
// goroutines if its io.ReaderAt may.
type Source struct {
	r      io.ReaderAt
	size   int64
	file   *os.File // that Open opened; nil where the reader is the caller's
	closed atomic.Bool
}

// Open opens a regular file. What is none is not even opened, because opening a FIFO or a
// device may block, or do something.
func Open(path string) (*Source, error) {
	before, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := regular(before); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = regular(info) // the path may name something else by now
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Source{r: f, size: info.Size(), file: f}, nil
}

func regular(info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	what := "a special file"
	switch m := info.Mode(); {
	case m.IsDir():
		what = "a directory"
	case m&fs.ModeNamedPipe != 0:
		what = "a FIFO"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	case m&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%w but %s, which has no size and no positions", ErrNotRegular, what)
}

// FromReaderAt is size bytes of a reader, which stays the caller's.
func FromReaderAt(r io.ReaderAt, size int64) (*Source, error) {
	if r == nil || size < 0 {
		return nil, fmt.Errorf("a reader of %d bytes: give an io.ReaderAt and a size that is not negative", size)
	}
	return &Source{r: r, size: size}, nil
}

// Size is the number of bytes when the source was opened.
func (s *Source) Size() int64 { return s.size }

// Close ends the source, and closes the file that Open opened. It may be called again.
func (s *Source) Close() error {
	if s.closed.Swap(true) || s.file == nil {
		return nil
	}
	return s.file.Close()
}

// ReadFull reads len(p) bytes at a position; fewer are an io.ErrUnexpectedEOF.
func (s *Source) ReadFull(p []byte, at int64) error {
	if s.closed.Load() {
		return fs.ErrClosed
	}
	n, err := s.r.ReadAt(p, at)
	switch {
	case n == len(p):
		return nil // io.EOF says no more than that it was the end
	case n < 0 || n > len(p):
		return fmt.Errorf("the reader says that it read %d bytes into %d", n, len(p))
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %d bytes at position %d of %d are there, %d were asked for; was the file cut off meanwhile?",
			io.ErrUnexpectedEOF, n, at, s.size, len(p))
	}
	return err
}
