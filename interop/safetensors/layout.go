package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

const (
	lengthBytes = 8
	maxHeader   = 100_000_000 // bytes, as in the reference implementation
	maxDims     = usmarray.MaxDims
	maxDepth    = 64 // of values that the format does not know
)

// Info describes a tensor of a file.
type Info struct {
	Name string
	// DataType is the element type; the zero value where no array has it, and then the
	// tensor cannot be read.
	DataType usmarray.DataType
	TypeName string // of the element type in the file, such as "BF16"
	Shape    []int  // empty for a scalar
	Offset   int64  // position of the first byte in the file
	NBytes   int64  // of all elements
}

// clone is a description of the caller's own.
func (i Info) clone() Info {
	i.Shape = slices.Clone(i.Shape)
	return i
}

// readTensors reads and checks the header of a file: the tensors in the order in which they
// lie, and the metadata.
func readTensors(src *transfer.Source) ([]Info, map[string]string, error) {
	var length [lengthBytes]byte
	if src.Size() < lengthBytes {
		return nil, nil, short("%d bytes are not even the length of a header", src.Size())
	}
	if err := src.ReadFull(length[:], 0); err != nil {
		return nil, nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, nil, formatError("a header of %d bytes; the format allows %d", n, maxHeader)
	}
	if int64(n) > src.Size()-lengthBytes {
		return nil, nil, short("a header of %d bytes in a file of %d", n, src.Size())
	}
	text := make([]byte, n)
	if err := src.ReadFull(text, lengthBytes); err != nil {
		return nil, nil, err
	}
	h, err := parseHeader(text)
	if err != nil {
		return nil, nil, err
	}
	list, err := place(h.entries, lengthBytes+int64(n), src.Size())
	return list, h.meta, err
}

// place checks that the tensors lie one after the other from start to the file's end.
func place(entries []entry, start, size int64) ([]Info, error) {
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	list := make([]Info, len(entries))
	at := int64(0)
	for i, e := range entries {
		if e.begin != at || e.end < e.begin {
			return nil, about(e.name, formatError("it lies at [%d, %d) of the data, and what is before it ends at %d: there are no holes and no overlaps", e.begin, e.end, at))
		}
		at = e.end
		if at > size-start {
			return nil, about(e.name, short("it ends at byte %d of the data, of which the file has %d", at, size-start))
		}
		t := Info{Name: e.name, DataType: byName[e.dtype], TypeName: e.dtype, Shape: e.shape, Offset: start + e.begin, NBytes: e.end - e.begin}
		if err := t.check(); err != nil {
			return nil, about(e.name, err)
		}
		list[i] = t
	}
	if at != size-start {
		return nil, formatError("the tensors have %d bytes, and %d follow the header; the file is covered to its end", at, size-start)
	}
	return list, nil
}

// check compares a tensor's bytes with its shape and type.
func (i *Info) check() error {
	l, err := usmarray.NewLayout(i.Shape, nil, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if i.DataType == (usmarray.DataType{}) {
		return nil
	}
	want, err := i.DataType.ByteSize(int64(l.Size()), false)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if bits := l.Size() * i.DataType.BitSize(); bits%8 != 0 {
		return formatError("%d elements of %s do not fill whole bytes", l.Size(), i.TypeName)
	}
	if want != i.NBytes {
		return formatError("shape %v of %s takes %d bytes, and its place has %d", i.Shape, i.TypeName, want, i.NBytes)
	}
	return nil
}

// elements says where a tensor's elements lie.
func (i *Info) elements() (*transfer.Elements, error) {
	if i.DataType == (usmarray.DataType{}) {
		return nil, about(i.Name, typeError("no array has elements of type %.40q", i.TypeName))
	}
	return &transfer.Elements{At: i.Offset, DataType: i.DataType, Shape: i.Shape, Swap: transfer.SwapFor(false, swapWidth(i.DataType))}, nil
}
