package safetensors

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

// WriteOptions say what is written and how. The zero value will do.
type WriteOptions struct {
	// Metadata is the file's __metadata__; nil for none.
	Metadata map[string]string
	// Writers is how many goroutines write at a time, 16 at most; 0 is one for each
	// processor, 8 at most. 1 makes no goroutine.
	Writers int
	// InPlace writes the file at its path, and does not wait for the disk. Otherwise it
	// is written beside it under another name and takes its place when all is on the
	// disk, so that no reader and no crash meets half a file; that needs room for both.
	InPlace bool
}

// Save writes arrays of any memory to a file, in C order, after waiting for pending work. A
// file that was there is replaced and its permissions are kept; a symbolic link is followed.
// When it fails no file is left behind: what was there stays, but with InPlace. Errors:
// usmarray.ErrType for an element type that the format lacks, ErrName, ErrNotRegular, those
// of package fs (a full disk is syscall.ENOSPC) and of the context.
func Save(ctx context.Context, path string, tensors map[string]*usmarray.Array, o WriteOptions) error {
	const op = "Save"
	header, order, err := prepare(tensors, o.Metadata)
	if err != nil {
		return named(op, path, err)
	}
	return named(op, path, transfer.Create(ctx, path, o.InPlace, func(f *os.File) error {
		if _, err := f.WriteAt(header, 0); err != nil {
			return err
		}
		at := int64(len(header))
		for _, t := range order {
			if err := t.content.WriteAt(ctx, f, at, o.Writers); err != nil {
				return about(t.name, err)
			}
			at += t.content.Bytes()
		}
		return nil
	}))
}

// Write writes arrays as Save does, to a stream, from the calling goroutine; only
// WriteOptions.Metadata matters. What was written before a failure stays. Errors:
// usmarray.ErrType, ErrName, the writer's, and the context's.
func Write(ctx context.Context, w io.Writer, tensors map[string]*usmarray.Array, o WriteOptions) error {
	const op = "Write"
	header, order, err := prepare(tensors, o.Metadata)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = transfer.Write(w, header)
	}
	for _, t := range order {
		if err == nil {
			err = about(t.name, t.content.WriteTo(ctx, w))
		}
	}
	return named(op, "", err)
}

// tensor is one on its way to a file.
type tensor struct {
	name    string
	rank    int // of its type in types
	shape   []int
	content *transfer.Content
}

// prepare makes the header and puts the tensors in order: as the reference implementation
// has them, by falling width of their elements and then by name.
func prepare(tensors map[string]*usmarray.Array, meta map[string]string) ([]byte, []tensor, error) {
	order := make([]tensor, 0, len(tensors))
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		a := tensors[name]
		if name == metadataKey || !utf8.ValidString(name) {
			return nil, nil, about(name, fmt.Errorf("%w: a tensor's name is UTF-8 and not %s", ErrName, metadataKey))
		}
		rank, ok := rankOf[a.DataType()]
		if !ok {
			return nil, nil, about(name, typeError("the format has no %s; convert the array (AsType)", a.DataType()))
		}
		if bits := a.Size() * a.DataType().BitSize(); bits%8 != 0 {
			return nil, nil, about(name, fmt.Errorf("%w: %d elements of %s do not fill whole bytes, as the format wants", usmarray.ErrLayout, a.Size(), a.DataType()))
		}
		c, err := transfer.NewContent(a, false, transfer.SwapFor(false, swapWidth(a.DataType())))
		if err != nil {
			return nil, nil, about(name, err)
		}
		order = append(order, tensor{name, rank, a.Shape(), c})
	}
	slices.SortStableFunc(order, func(a, b tensor) int { return cmp.Compare(b.rank, a.rank) })
	header, err := appendHeader(order, meta)
	return header, order, err
}

// appendHeader is the length and the JSON, padded so that the elements begin at a multiple
// of eight bytes.
func appendHeader(order []tensor, meta map[string]string) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, lengthBytes))
	write := func(v any) { // a value of the format's own: nothing that fails
		text := json.NewEncoder(b)
		text.SetEscapeHTML(false)
		_ = text.Encode(v)
		b.Truncate(b.Len() - 1) // the end of the line
	}
	separator := "{"
	key := func(name string) {
		b.WriteString(separator)
		separator = ","
		write(name)
		b.WriteByte(':')
	}
	if meta != nil {
		for k, v := range meta {
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return nil, fmt.Errorf("%w: the metadata %q: %q is not UTF-8", ErrFormat, k, v)
			}
		}
		key(metadataKey)
		write(meta)
	}
	at := int64(0)
	for _, t := range order {
		key(t.name)
		end := at + t.content.Bytes()
		write(struct {
			DType   string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{types[t.rank].name, t.shape, [2]int64{at, end}})
		at = end
	}
	if separator == "{" {
		b.WriteString(separator)
	}
	b.WriteByte('}')
	for b.Len()%lengthBytes != 0 {
		b.WriteByte(' ')
	}
	n := b.Len() - lengthBytes
	if n > maxHeader {
		return nil, formatError("a header of %d bytes; the format allows %d: write fewer tensors to a file", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(n))
	return b.Bytes(), nil
}
