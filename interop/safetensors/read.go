package safetensors

import (
	"context"
	"io"
	"maps"

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

// File is an open safetensors file. Its header has been read. It is safe for concurrent use.
type File struct {
	src     *transfer.Source
	name    string
	tensors []Info
	index   map[string]int
	meta    map[string]string
}

// Open opens a regular file and reads its header. The caller must close the File. Errors: ErrFormat,
// ErrNotRegular, errors of package fs.
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

// NewFile reads the header of a file of size bytes from r. The caller keeps ownership of r, whose ReadAt is
// called from several goroutines. Errors: ErrFormat, and those of r.
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

// Tensors returns the descriptions of all tensors, in the order of their positions.
func (f *File) Tensors() []Info {
	list := make([]Info, len(f.tensors))
	for i, t := range f.tensors {
		list[i] = t.clone()
	}
	return list
}

// Tensor returns the description of a tensor. ok is false if the file has no tensor of that name.
func (f *File) Tensor(name string) (info Info, ok bool) {
	i, ok := f.index[name]
	if !ok {
		return Info{}, false
	}
	return f.tensors[i].clone(), true
}

// Metadata returns a copy of __metadata__, or nil if the file has none.
func (f *File) Metadata() map[string]string { return maps.Clone(f.meta) }

// Close closes the file that Open opened. Later calls return nil.
func (f *File) Close() error { return named("Close", f.name, f.src.Close()) }

// Read reads a tensor into new memory of r. The caller owns the array. Errors: ErrName, usmarray.ErrType for an
// unsupported element type; see the package documentation for others.
func (f *File) Read(ctx context.Context, name string, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "Read", name, transfer.Whole, r, o)
}

// ReadRows reads rows [lo, hi) of the first axis as Read does. Errors: usmarray.ErrIndex for rows out of range,
// usmarray.ErrLayout if row lo of packed elements does not begin at a byte, and those of Read.
func (f *File) ReadRows(ctx context.Context, name string, r memmgr.Resource, lo, hi int, o ReadOptions) (*usmarray.Array, error) {
	return f.read(ctx, "ReadRows", name, transfer.Rows{Lo: lo, Hi: hi}, r, o)
}

func (f *File) read(ctx context.Context, op, name string, rows transfer.Rows, r memmgr.Resource, o ReadOptions) (*usmarray.Array, error) {
	e, err := f.elements(name)
	if err != nil {
		return nil, named(op, f.name, err)
	}
	arrays, err := transfer.ReadNew(ctx, f.src, []transfer.Wish{{Elements: e, Rows: rows}}, r, o.transfer())
	if err != nil {
		return nil, named(op, f.name, about(name, err))
	}
	return arrays[0], nil
}

func (f *File) elements(name string) (*transfer.Elements, error) {
	i, ok := f.index[name]
	if !ok {
		return nil, about(name, opErr(ErrName, "the file has %d tensors; Tensors lists them", len(f.tensors)))
	}
	return f.tensors[i].elements()
}

// ReadAll reads the named tensors, or all tensors if there are no names, each into its own memory, in parallel.
// The caller owns the arrays. On an error it returns none. Only the first allocation waits for memory, as in
// Read. If a later one fails for lack of memory, all are released and the error is memmgr.ErrOutOfMemory.
// Errors: those of Read.
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
	arrays, err := transfer.ReadNew(ctx, f.src, wishes, r, o.transfer())
	if err != nil {
		return nil, named(op, f.name, err)
	}
	all := make(map[string]*usmarray.Array, len(arrays))
	for i, a := range arrays {
		all[unique[i]] = a
	}
	return all, nil
}

// ReadInto reads a tensor into an existing array, which must have the same element type and shape, and be
// contiguous in C order. It waits for pending work on that array first. After an error the elements are
// undefined. Errors: usmarray.ErrType, usmarray.ErrLayout, usmarray.ErrReadOnly, and those of Read.
func (f *File) ReadInto(ctx context.Context, name string, a *usmarray.Array, o ReadOptions) error {
	return f.into(ctx, "ReadInto", name, transfer.Whole, a, o)
}

// ReadRowsInto reads rows [lo, hi) of the first axis as ReadInto does.
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
