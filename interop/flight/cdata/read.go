package cdata

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
)

// What a producer wrote is read here, each byte once, and nowhere else: what is checked is
// the copy, and what is used is what was checked, whatever the producer writes meanwhile.

func misfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", usmarrow.ErrMalformed, fmt.Sprintf(format, args...))
}

// What a schema's texts may be at most.
const (
	maxPairs  = 1 << 10
	maxText   = 1 << 24 // bytes
	maxFormat = 32      // bytes, more than the longest format that is taken has
)

// takeSchema moves a schema: whoever has the copy releases it, the producer's struct says
// that it was.
func takeSchema(s *Schema) Schema {
	c := *s
	s.release = nil
	return c
}

func takeArray(a *Array) Array {
	c := *a
	a.release = nil
	return c
}

// field is what a schema says of a column.
type field struct {
	values    arrow.DataType // of an element
	list      int32          // elements of a list; 0 where the column is plain values
	extension []string       // name and parameters of an extension type; nil for none
}

// readField reads the copy of a schema, and what it points to: by its format first, so
// that of a column of another type nothing else is.
func readField(s Schema, nested bool) (f field, err error) {
	switch {
	case s.Released():
		return f, misfit("a schema that was released")
	case s.format == nil:
		return f, misfit("a schema without a format")
	case s.dictionary != nil:
		return f, fmt.Errorf("%w: dictionary-encoded values; decode them first", usmarrow.ErrType)
	}
	if f.values, f.list, err = parseFormat(readFormat(s.format)); err != nil {
		return f, err
	}
	var child *Schema
	switch {
	case f.list == 0 && s.nChildren != 0:
		return f, misfit("values whose schema has %d children; they have none", s.nChildren)
	case f.list == 0:
	case nested:
		return f, fmt.Errorf("%w: lists of lists", usmarrow.ErrType)
	case s.nChildren == 1 && s.children != nil:
		child = childSchema(&s)
	}
	if f.list > 0 && child == nil {
		return f, misfit("lists whose schema has %d children; they have one, their elements", s.nChildren)
	}
	if f.extension, err = readExtension(s.metadata); err != nil || child == nil {
		return f, err
	}
	elements, err := readField(*child, true)
	if err == nil && elements.extension != nil {
		err = fmt.Errorf("%w: lists of %q", usmarrow.ErrType, elements.extension[0])
	}
	f.values = elements.values
	return f, err
}

// readFormat reads a format, or its beginning.
func readFormat(p unsafe.Pointer) string {
	var b []byte
	for i := range maxFormat {
		c := *(*byte)(unsafe.Add(p, i))
		if c == 0 {
			break
		}
		b = append(b, c)
	}
	return string(b)
}

// parseFormat lets the values through that arrays have, and lists of one size.
func parseFormat(format string) (values arrow.DataType, list int32, err error) {
	if size, ok := strings.CutPrefix(format, "+w:"); ok {
		n, err := strconv.ParseInt(size, 10, 32)
		if err != nil || n < 1 || size[0] == '+' || len(format) == maxFormat { // there may be more digits
			return nil, 0, misfit("format %q: lists have a size from 1 to %d", format, math.MaxInt32)
		}
		return nil, int32(n), nil
	}
	if format == "" {
		return nil, 0, misfit("a schema with an empty format")
	}
	if t, ok := types[format]; ok {
		return t, 0, nil
	}
	return nil, 0, fmt.Errorf("%w: a column or elements of format %q; tensors hold int8 to int64, uint8 to uint64, float16, float32 and float64, as values or in lists of one size (+w)", usmarrow.ErrType, format)
}

// readExtension finds an extension type in a schema's metadata, which may be nil.
func readExtension(p unsafe.Pointer) ([]string, error) {
	if p == nil {
		return nil, nil
	}
	pairs := readInt32(p)
	if pairs < 0 || pairs > maxPairs {
		return nil, misfit("metadata of %d pairs", pairs)
	}
	p = unsafe.Add(p, 4)
	keys := []string{ipc.ExtensionTypeKeyName, ipc.ExtensionMetadataKeyName}
	var said [2]*string
	for range pairs {
		var pair [2][]byte
		for i := range pair {
			n := readInt32(p)
			if n < 0 || n > maxText {
				return nil, misfit("metadata with a text of %d bytes", n)
			}
			pair[i] = unsafe.Slice((*byte)(unsafe.Add(p, 4)), n)
			p = unsafe.Add(p, 4+int(n))
		}
		i := slices.Index(keys, string(pair[0]))
		if i < 0 {
			continue
		}
		if said[i] != nil { // of which others may take the other one
			return nil, misfit("metadata with %s twice", keys[i])
		}
		text := string(pair[1])
		said[i] = &text
	}
	if said[0] == nil {
		return nil, nil
	}
	if said[1] == nil {
		return []string{*said[0], ""}, nil
	}
	return []string{*said[0], *said[1]}, nil
}

// readInt32 reads a number at any address, aligned or not.
func readInt32(p unsafe.Pointer) int32 {
	var b [4]byte
	copy(b[:], unsafe.Slice((*byte)(p), 4))
	return int32(binary.NativeEndian.Uint32(b[:]))
}

// extent is what an array says of a column.
type extent struct {
	length, nulls, offset int
	buffers               [2]unsafe.Pointer // validity, and of values themselves
	elements              *extent           // of lists
}

// readExtent reads the copy of an array of a known form, and what it points to.
func readExtent(a Array, list bool) (e extent, err error) {
	buffers := int64(2)
	if list {
		buffers = 1
	}
	switch {
	case a.Released():
		return e, misfit("an array that was released, or whose elements were moved out")
	case a.dictionary != nil:
		return e, misfit("an array with a dictionary, of which its schema says nothing")
	case a.length < 0 || a.offset < 0 || a.length > math.MaxInt-a.offset:
		return e, misfit("an array of %d from %d on", a.length, a.offset)
	case a.nullCount < -1 || a.nullCount > a.length:
		return e, misfit("%d nulls in an array of %d", a.nullCount, a.length)
	case a.nBuffers != buffers || a.buffers == nil:
		return e, misfit("an array of %d buffers at %v; one of its type has %d", a.nBuffers, a.buffers, buffers)
	case !list && a.nChildren != 0:
		return e, misfit("values whose array has %d children; they have none", a.nChildren)
	}
	e = extent{length: int(a.length), nulls: int(a.nullCount), offset: int(a.offset)}
	copy(e.buffers[:], unsafe.Slice((*unsafe.Pointer)(a.buffers), buffers))
	if a.nullCount > 0 && e.buffers[0] == nil {
		return e, misfit("%d nulls, and no bitmap that says which", a.nullCount)
	}
	if !list {
		return e, nil
	}
	var child *Array
	if a.nChildren == 1 && a.children != nil {
		child = childArray(&a)
	}
	if child == nil {
		return e, misfit("lists whose array has %d children; they have one, their elements", a.nChildren)
	}
	elements, err := readExtent(*child, false)
	e.elements = &elements
	return e, err
}
