package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// ErrNotRegular is returned for a path of a directory or special file.
var ErrNotRegular = errors.New("not a regular file")

// Source is a file or an io.ReaderAt with a known size. It is safe for concurrent use if the
// io.ReaderAt is.
type Source struct {
	r      io.ReaderAt
	size   int64
	file   *os.File // opened by Open; nil if the caller owns the reader
	closed atomic.Bool
}

// Open opens a regular file. Other files are refused before they are opened, because opening a FIFO
// or a device can block or have side effects.
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
		err = regular(info) // the path may have been replaced since the first check
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

// FromReaderAt returns a source of the first size bytes of a reader. The caller keeps ownership of
// the reader.
func FromReaderAt(r io.ReaderAt, size int64) (*Source, error) {
	if r == nil || size < 0 {
		return nil, fmt.Errorf("invalid reader or size %d; pass a non-nil io.ReaderAt and a size of at least 0", size)
	}
	return &Source{r: r, size: size}, nil
}

// Size returns the size in bytes at the time of opening.
func (s *Source) Size() int64 { return s.size }

// Close makes later reads fail, and closes the file if Open opened it. Later calls return nil.
func (s *Source) Close() error {
	if s.closed.Swap(true) || s.file == nil {
		return nil
	}
	return s.file.Close()
}

// ReadFull reads len(p) bytes at a position. It returns io.ErrUnexpectedEOF if there are fewer.
func (s *Source) ReadFull(p []byte, at int64) error {
	if s.closed.Load() {
		return fs.ErrClosed
	}
	n, err := s.r.ReadAt(p, at)
	switch {
	case n == len(p):
		return nil // with io.EOF if these were the last bytes
	case n < 0 || n > len(p):
		return fmt.Errorf("the reader reports %d bytes read into a buffer of %d", n, len(p))
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%w: got %d bytes at position %d of %d, want %d; was the file truncated after it was opened?",
			io.ErrUnexpectedEOF, n, at, s.size, len(p))
	}
	return err
}
