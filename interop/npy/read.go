package npy

import (
	"context"
	"io"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ReadOptions say how a file is read. The zero value will do.
type ReadOptions struct {
	// Readers is how many goroutines read at a time, 16 at most; 0 is one for each
	// processor, 8 at most. 1 makes no goroutine.
	Readers int
	// Queue is where the memory will first be used; nil when that is not known.
	Queue *syclobj.Queue
	// Tag names the user of the memory in statistics and reports.
	Tag string
}

func (o ReadOptions) below() transfer.Options {
	return transfer.Options{Workers: o.Readers, Queue: o.Queue, Tag: o.Tag}
}

// File is a .npy file of which the header was read. Its methods may be called from several
// goroutines.
type File struct {
	src      *transfer.Source
	name     string
	header   Header
	elements transfer.Elements
}

// Open opens a regular file and reads its header. The caller closes the File. Errors:
// ErrFormat, ErrNotRegular, usmarray.ErrType, those of package fs.
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

// NewFile reads the header of a file of size bytes in a reader, which stays the caller's;
// its ReadAt is called from several goroutines. Bytes after the elements are left
// alone, as NumPy leaves them. Errors: as of Open, and the reader's own.
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

// Header is what the file says of its array.
func (f *File) Header() Header { return f.header.clone() }

// Close closes the file that Open opened. It may be called again.
func (f *File) Close() error { return named("Close", f.name, f.src.Close()) }

// Read reads the array into new memory of a resource, in the order of the file. The caller
// owns it. Errors: see the package's page.
func (f *File) Read(ctx context.Context, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "Read", transfer.Whole, r, o)
}

// ReadRows is Read of rows [lo, hi) of the first axis, without reading the others. Errors:
// usmarray.ErrIndex for rows that are not there, and those of Read.
func (f *File) ReadRows(ctx context.Context, r memmgr.Resource, lo, hi int, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "ReadRows", transfer.Rows{Lo: lo, Hi: hi}, r, o)
}

func (f *File) read(ctx context.Context, op string, rows transfer.Rows, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	arrays, err := transfer.ReadNew(ctx, f.src, []transfer.Wish{{Elements: &f.elements, Rows: rows}}, r, o.below())
	if err != nil {
		return nil, named(op, f.name, err)
	}
	return arrays[0], nil
}

// ReadInto reads the array into one of the file's element type and shape whose elements lie
// densely in the file's order, in any memory. It waits for work pending there first. After a
// failure the elements are undefined. Errors: usmarray.ErrType, usmarray.ErrLayout,
// usmarray.ErrReadOnly, and those of Read.
func (f *File) ReadInto(ctx context.Context, a *usmarray.Array, o ReadOptions) error {
	return f.into(ctx, "ReadInto", transfer.Whole, a, o)
}

// ReadRowsInto is ReadInto of rows [lo, hi) of the first axis.
func (f *File) ReadRowsInto(ctx context.Context, a *usmarray.Array, lo, hi int, o ReadOptions) error {
	return f.into(ctx, "ReadRowsInto", transfer.Rows{Lo: lo, Hi: hi}, a, o)
}

func (f *File) into(ctx context.Context, op string, rows transfer.Rows, a *usmarray.Array, o ReadOptions) error {
	return named(op, f.name, transfer.ReadInto(ctx, f.src, transfer.Wish{Elements: &f.elements, Rows: rows}, a, o.Readers))
}

// Load opens, reads and closes a file: File.Read of Open.
func Load(ctx context.Context, path string, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	const op = "Load"
	f, err := open(path)
	if err != nil {
		return nil, named(op, path, err)
	}
	defer func() { _ = f.Close() }()
	return f.read(ctx, op, transfer.Whole, r, o)
}
