package npy

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

const (
	magic = "\x93NUMPY"
	// maxHeader is the maximum size of a header in bytes. It is the limit of version 1.0, and
	// much more than supported types need.
	maxHeader = 1<<16 - 1
	alignment = 64 // alignment of the elements in the file
	// growth is the space that numpy.save reserves in the header so that the extent of the growing
	// axis can be rewritten when elements are appended.
	growth = 21
)

// Header describes the array of a file.
type Header struct {
	Version      [2]int // of the format: {1, 0}, {2, 0} or {3, 0}
	DataType     usmarray.DataType
	Shape        []int // empty for a scalar
	FortranOrder bool
	BigEndian    bool  // multi-byte elements are converted when they are read
	DataOffset   int64 // position of the first element in the file
	NBytes       int64 // size of all elements in bytes
}

// readHeader reads and validates the header, and returns the position of the elements.
func readHeader(src *transfer.Source) (h Header, e transfer.Elements, err error) {
	first := make([]byte, min(src.Size(), 12))
	if err := src.ReadFull(first, 0); err != nil {
		return h, e, err
	}
	if string(first[:min(len(first), 2)]) == "PK" {
		return h, e, formatError("a zip archive (.npz, of numpy.savez); extract it, each of its .npy files is one array")
	}
	if n := min(len(first), len(magic)); string(first[:n]) != magic[:n] {
		return h, e, formatError("invalid magic (got %q, want %q)", first[:n], magic)
	}
	if len(first) < 10 {
		return h, e, short("incomplete header (the file has %d bytes)", src.Size())
	}
	h.Version = [2]int{int(first[6]), int(first[7])}
	start, n := int64(10), int64(0)
	switch h.Version {
	case [2]int{1, 0}:
		n = int64(binary.LittleEndian.Uint16(first[8:]))
	case [2]int{2, 0}, [2]int{3, 0}:
		if len(first) < 12 {
			return h, e, short("incomplete header (the file has %d bytes)", src.Size())
		}
		start, n = 12, int64(binary.LittleEndian.Uint32(first[8:]))
	default:
		return h, e, formatError("unsupported format version %d.%d (want 1.0, 2.0 or 3.0)", h.Version[0], h.Version[1])
	}
	if n > src.Size()-start {
		return h, e, short("incomplete header (it has %d bytes, the file %d)", n, src.Size())
	}
	if n > maxHeader {
		return h, e, formatError("header too long (got %d bytes, at most %d are supported; only structured types need more)", n, maxHeader)
	}
	text := make([]byte, n)
	if err := src.ReadFull(text, start); err != nil {
		return h, e, err
	}
	if h.Version[0] == 3 && !utf8.Valid(text) {
		return h, e, formatError("the header of version 3.0 is not UTF-8")
	}
	l, err := parseLiteral(string(text))
	if err != nil {
		return h, e, err
	}
	dt, order, err := parseDescr(l.descr)
	if err != nil {
		return h, e, err
	}
	h.DataType = dt
	h.Shape, h.FortranOrder, h.DataOffset = l.shape, l.fortran, start+n
	h.BigEndian = order == big && h.DataType.Size() > 1
	e = h.elements(order)
	if h.NBytes, err = e.Check(); err != nil {
		return h, e, formatError("%w", err)
	}
	if there := src.Size() - h.DataOffset; h.NBytes > there {
		return h, e, short("incomplete elements (shape %v of %s needs %d bytes, %d follow the header)", h.Shape, h.DataType, h.NBytes, there)
	}
	return h, e, nil
}

// elements returns the position and layout of the elements.
func (h *Header) elements(order byteOrder) transfer.Elements {
	e := transfer.Elements{At: h.DataOffset, DataType: h.DataType, Shape: h.Shape, Fortran: h.FortranOrder && len(h.Shape) > 1}
	if order != native {
		e.Swap = transfer.SwapFor(order == big, h.DataType)
	}
	return e
}

// appendHeader appends the header of version 1.0 that numpy.save writes.
func appendHeader(b []byte, descr string, fortran bool, shape []int) []byte {
	var text strings.Builder
	order := "False"
	if fortran {
		order = "True"
	}
	fmt.Fprintf(&text, "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr, order)
	for i, d := range shape {
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprint(&text, d)
	}
	if len(shape) == 1 {
		text.WriteString(",")
	}
	text.WriteString("), }")
	if len(shape) > 0 {
		d := shape[0]
		if fortran {
			d = shape[len(shape)-1]
		}
		text.WriteString(strings.Repeat(" ", growth-len(fmt.Sprint(d))))
	}
	start := len(magic) + 2 + 2
	pad := alignment - (start+text.Len()+1)%alignment
	n := text.Len() + pad + 1
	b = append(b, magic...)
	b = append(b, 1, 0, byte(n), byte(n>>8))
	b = append(b, text.String()...)
	b = append(b, strings.Repeat(" ", pad)...)
	return append(b, '\n')
}

// clone returns a deep copy.
func (h Header) clone() Header {
	h.Shape = slices.Clone(h.Shape)
	return h
}
