package safetensors

import (
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// ReadOptions say how tensors are read. The zero value will do.
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

// File is a safetensors file of which the header was read. Its methods may be called from
// several goroutines.
type File struct {
	src     *transfer.Source
	name    string
	tensors []Info
	index   map[string]int
	meta    map[string]string
}

// Open opens a regular file and reads its header. The caller closes the File. Errors:
// ErrFormat, ErrNotRegular, those of package fs.
func Open(path string) (*File, error) {
	const op = "Open"
	src, err := transfer.Open(path)
	if err != nil {
		return nil, named(op, path, err)
	}
	f, err := newFile(src, path)
	if err != nil {
		_ = src.Close()
	}
	return f, named(op, path, err)
}

// NewFile reads the header of a file of size bytes in a reader, which stays the caller's;
// its ReadAt is called from several goroutines. Errors: ErrFormat, and the reader's own.
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
	tensors, meta, err := readTensors(src)
	if err != nil {
		return nil, err
	}
	f := &File{src: src, name: name, tensors: tensors, meta: meta, index: make(map[string]int, len(tensors))}
	for i := range tensors {
		f.index[tensors[i].Name] = i
	}
	return f, nil
}

// Tensors describes all tensors, in the order in which they lie in the file.
func (f *File) Tensors() []Info {
	list := make([]Info, len(f.tensors))
	for i, t := range f.tensors {
		list[i] = t.clone()
	}
	return list
}

// Tensor describes one; ok is false when the file has none of the name.
func (f *File) Tensor(name string) (info Info, ok bool) {
	i, ok := f.index[name]
	if !ok {
		return Info{}, false
	}
	return f.tensors[i].clone(), true
}

// Metadata is a copy of the file's __metadata__, nil when it has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.meta) }

// Close closes the file that Open opened. It may be called again.
func (f *File) Close() error { return named("Close", f.name, f.src.Close()) }

// Read reads a tensor into new memory of a resource. The caller owns it. Errors: ErrName,
// usmarray.ErrType for an element type that no array has; see the package's page.
func (f *File) Read(ctx context.Context, name string, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "Read", name, transfer.Whole, r, o)
}

// ReadRows is Read of rows [lo, hi) of the first axis, without reading the others. Errors:
// usmarray.ErrIndex for rows that are not there, usmarray.ErrLayout for packed elements of
// which the first row begins within a byte, and those of Read.
func (f *File) ReadRows(ctx context.Context, name string, r memmgr.Resource, lo, hi int, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "ReadRows", name, transfer.Rows{Lo: lo, Hi: hi}, r, o)
}

func (f *File) read(ctx context.Context, op, name string, rows transfer.Rows, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	e, err := f.elements(name)
	if err != nil {
		return nil, named(op, f.name, err)
	}
	arrays, err := transfer.ReadNew(ctx, f.src, []transfer.Wish{{Elements: e, Rows: rows}}, r, o.below())
	if err != nil {
		return nil, named(op, f.name, about(name, err))
	}
	return arrays[0], nil
}

func (f *File) elements(name string) (*transfer.Elements, error) {
	i, ok := f.index[name]
	if !ok {
		return nil, about(name, fmt.Errorf("%w; the file has %d others (Tensors)", ErrName, len(f.tensors)))
	}
	return f.tensors[i].elements()
}

// ReadAll reads tensors, or all of the file where no names are given, each into memory of
// its own; the goroutines go from one to the next. The caller owns the arrays. On an error
// there are none. Only the first allocation waits for room as that of Read does: where a
// later one finds none, the memory is given back and the error is memmgr.ErrOutOfMemory.
// Errors: as of Read.
func (f *File) ReadAll(ctx context.Context, r memmgr.Resource, o ReadOptions, names ...string) (map[string]*usmarray.Array, error) {
	const op = "ReadAll"
	if len(names) == 0 {
		for _, t := range f.tensors {
			names = append(names, t.Name)
		}
	}
	wishes := make([]transfer.Wish, 0, len(names))
	seen := make(map[string]bool, len(names))
	unique := names[:0:0]
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		e, err := f.elements(name)
		if err != nil {
			return nil, named(op, f.name, err)
		}
		unique = append(unique, name)
		wishes = append(wishes, transfer.Wish{Elements: e, Rows: transfer.Whole})
	}
	arrays, err := transfer.ReadNew(ctx, f.src, wishes, r, o.below())
	if err != nil {
		return nil, named(op, f.name, err)
	}
	all := make(map[string]*usmarray.Array, len(arrays))
	for i, a := range arrays {
		all[unique[i]] = a
	}
	return all, nil
}

// ReadInto reads a tensor into an array of its element type and shape that lies densely in C
// order, in any memory. It waits for work pending there first. After a failure the elements
// are undefined. Errors: usmarray.ErrType, usmarray.ErrLayout, usmarray.ErrReadOnly, and
// those of Read.
func (f *File) ReadInto(ctx context.Context, name string, a *usmarray.Array, o ReadOptions) error {
	return f.into(ctx, "ReadInto", name, transfer.Whole, a, o)
}

// ReadRowsInto is ReadInto of rows [lo, hi) of the first axis.
func (f *File) ReadRowsInto(ctx context.Context, name string, a *usmarray.Array, lo, hi int, o ReadOptions) error {
	return f.into(ctx, "ReadRowsInto", name, transfer.Rows{Lo: lo, Hi: hi}, a, o)
}

func (f *File) into(ctx context.Context, op, name string, rows transfer.Rows, a *usmarray.Array, o ReadOptions) error {
	e, err := f.elements(name)
	if err != nil {
		return named(op, f.name, err)
	}
	return named(op, f.name, about(name, transfer.ReadInto(ctx, f.src, transfer.Wish{Elements: e, Rows: rows}, a, o.Readers)))
}
