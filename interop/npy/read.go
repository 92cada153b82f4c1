package npy

import (
	"context"
	"io"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ReadOptions configures reads. The zero value is valid.
type ReadOptions struct {
	// Readers is the number of goroutines that read, at most 16. 0 means one for each
	// processor, at most 8. With 1 the caller's goroutine reads.
	Readers int
	// Queue is the queue that uses the memory first, or nil if it is not known.
	Queue *syclobj.Queue
	// Tag is the tag of the memory in statistics and reports.
	Tag string
}

func (o ReadOptions) transfer() transfer.Options {
	return transfer.Options{Workers: o.Readers, Queue: o.Queue, Tag: o.Tag}
}

// File is an open .npy file. Its header has been read. It is safe for concurrent use.
type File struct {
	src      *transfer.Source
	name     string
	header   Header
	elements transfer.Elements
}

// Open opens a regular file and reads its header. The caller must close the File. Errors: ErrFormat,
// ErrNotRegular, usmarray.ErrType, errors of package fs.
func Open(path string) (*File, error) {
	f, err := open(path)
	return f, named("Open", path, err)
}

func open(path string) (*File, error) {
	src, err := transfer.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := newFile(src, path)
	if err != nil {
		_ = src.Close()
	}
	return f, err
}

// NewFile reads the header of a file of size bytes from r. The caller keeps ownership of r, whose ReadAt
// is called from several goroutines. As in NumPy, bytes after the elements are ignored. Errors: those of
// Open and of r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	const op = "NewFile"
	src, err := transfer.FromReaderAt(r, size)
	if err != nil {
		return nil, named(op, "", err)
	}
	f, err := newFile(src, "")
	return f, named(op, "", err)
}

func newFile(src *transfer.Source, name string) (*File, error) {
	h, e, err := readHeader(src)
	if err != nil {
		return nil, err
	}
	return &File{src: src, name: name, header: h, elements: e}, nil
}

// Header returns the description of the array.
func (f *File) Header() Header { return f.header.clone() }

// Close closes the file that Open opened. Later calls return nil.
func (f *File) Close() error { return named("Close", f.name, f.src.Close()) }

// Read reads the array into new memory of r, in the order of the file. The caller owns the array. Errors:
// see the package documentation.
func (f *File) Read(ctx context.Context, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "Read", transfer.Whole, r, o)
}

// ReadRows reads rows [lo, hi) of the first axis as Read does. Errors: usmarray.ErrIndex for rows out of
// range, and those of Read.
func (f *File) ReadRows(ctx context.Context, r memmgr.Resource, lo, hi int, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "ReadRows", transfer.Rows{Lo: lo, Hi: hi}, r, o)
}

func (f *File) read(ctx context.Context, op string, rows transfer.Rows, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	arrays, err := transfer.ReadNew(ctx, f.src, []transfer.Wish{{Elements: &f.elements, Rows: rows}}, r, o.transfer())
	if err != nil {
		return nil, named(op, f.name, err)
	}
	return arrays[0], nil
}

// ReadInto reads the array into an existing one, which must have the same element type and shape, and
// contiguous elements in the order of the file. It waits for pending work on that array first. After an
// error the elements are undefined. Errors: usmarray.ErrType, usmarray.ErrLayout, usmarray.ErrReadOnly, and
// those of Read.
func (f *File) ReadInto(ctx context.Context, a *usmarray.Array, o ReadOptions) error {
	return f.into(ctx, "ReadInto", transfer.Whole, a, o)
}

// ReadRowsInto reads rows [lo, hi) of the first axis as ReadInto does.
func (f *File) ReadRowsInto(ctx context.Context, a *usmarray.Array, lo, hi int, o ReadOptions) error {
	return f.into(ctx, "ReadRowsInto", transfer.Rows{Lo: lo, Hi: hi}, a, o)
}

func (f *File) into(ctx context.Context, op string, rows transfer.Rows, a *usmarray.Array, o ReadOptions) error {
	return named(op, f.name, transfer.ReadInto(ctx, f.src, transfer.Wish{Elements: &f.elements, Rows: rows}, a, o.Readers))
}

// Load opens the file, reads the array as File.Read does, and closes the file.
func Load(ctx context.Context, path string, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	const op = "Load"
	f, err := open(path)
	if err != nil {
		return nil, named(op, path, err)
	}
	defer func() { _ = f.Close() }()
	return f.read(ctx, op, transfer.Whole, r, o)
}
