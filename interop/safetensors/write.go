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

	"github.com/usmbridge/usmbridge/internal/operr"
	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

// WriteOptions configures Save and Write. The zero value is valid.
type WriteOptions struct {
	// Metadata is written as __metadata__, unless it is nil.
	Metadata map[string]string
	// Writers is the number of goroutines that write, at most 16. 0 means one for each
	// processor, at most 8. With 1 the caller's goroutine writes.
	Writers int
	// InPlace writes to the file directly and does not sync it to disk. Otherwise Save writes
	// a temporary file in the same directory, syncs it and renames it, so that readers never
	// see an incomplete file, also after a crash. That needs disk space for both files.
	InPlace bool
}

// Save writes arrays to a file in C order, after waiting for pending work on them. An existing file is
// replaced and its permissions are kept; symbolic links are followed. If Save fails, it leaves no new file,
// and unless InPlace is set the existing file is unchanged. Errors: usmarray.ErrType for an element type
// that the format lacks, ErrName, ErrNotRegular, errors of package fs (syscall.ENOSPC for a full disk), the
// context's error.
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

// Write writes arrays to a stream in the format of Save, from the calling goroutine. Of the options it uses
// Metadata only. After an error, w has a part of the file. Errors: usmarray.ErrType, ErrName, those of w, the
// context's error.
func Write(ctx context.Context, w io.Writer, tensors map[string]*usmarray.Array, o WriteOptions) error {
	const op = "Write"
	header, order, err := prepare(tensors, o.Metadata)
	if err == nil {
		err = operr.Ended(ctx)
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

// tensor is a tensor to be written.
type tensor struct {
	name    string
	rank    int // index of its type in types
	shape   []int
	content *transfer.Content
}

// prepare returns the header, and the tensors in the order of the reference implementation: by decreasing
// width of their elements, then by name.
func prepare(tensors map[string]*usmarray.Array, meta map[string]string) ([]byte, []tensor, error) {
	order := make([]tensor, 0, len(tensors))
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		a := tensors[name]
		if name == metadataKey || !utf8.ValidString(name) {
			return nil, nil, about(name, opErr(ErrName, "a tensor's name must be UTF-8 and not %s", metadataKey))
		}
		rank, ok := rankOf[a.DataType()]
		if !ok {
			return nil, nil, about(name, transfer.TypeError("the format has no type %s; convert the array with AsType", a.DataType()))
		}
		if bits := a.Size() * a.DataType().BitSize(); bits%8 != 0 {
			return nil, nil, about(name, fmt.Errorf("%w: %d elements of %s do not fill whole bytes, which the format requires", usmarray.ErrLayout, a.Size(), a.DataType()))
		}
		c, err := transfer.NewContent(a, false, transfer.SwapFor(false, a.DataType()))
		if err != nil {
			return nil, nil, about(name, err)
		}
		order = append(order, tensor{name, rank, a.Shape(), c})
	}
	slices.SortStableFunc(order, func(a, b tensor) int { return cmp.Compare(b.rank, a.rank) })
	header, err := appendHeader(order, meta)
	return header, order, err
}

// appendHeader returns the length and the JSON, padded so that the elements begin at a multiple of eight bytes.
func appendHeader(order []tensor, meta map[string]string) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, lengthBytes))
	write := func(v any) { // encoding these types cannot fail
		text := json.NewEncoder(b)
		text.SetEscapeHTML(false)
		_ = text.Encode(v)
		b.Truncate(b.Len() - 1) // the newline of Encode
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
				return nil, formatError("the metadata %q: %q is not UTF-8", k, v)
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
		return nil, formatError("header too long (got %d bytes, the format allows %d); write fewer tensors to a file", n, maxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(n))
	return b.Bytes(), nil
}
