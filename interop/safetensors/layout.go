package safetensors

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
	"github.com/usmbridge/usmbridge/usmarray"
)

const (
	lengthBytes = 8
	maxHeader   = 100_000_000 // bytes, as in the reference implementation
	maxDims     = usmarray.MaxDims
	maxDepth    = 64 // nesting of ignored values
)

// Info describes a tensor of a file.
type Info struct {
	Name string
	// DataType is the element type, or the zero value if arrays do not support it. Then the tensor
	// cannot be read.
	DataType usmarray.DataType
	TypeName string // element type in the file, such as "BF16"
	Shape    []int  // empty for a scalar
	Offset   int64  // position of the first byte in the file
	NBytes   int64  // size of all elements in bytes
}

// clone returns a deep copy.
func (i Info) clone() Info {
	i.Shape = slices.Clone(i.Shape)
	return i
}

// readTensors reads and validates the header. It returns the tensors in the order of their positions, and the
// metadata.
func readTensors(src *transfer.Source) ([]Info, map[string]string, error) {
	var length [lengthBytes]byte
	if src.Size() < lengthBytes {
		return nil, nil, short("incomplete header (the file has %d bytes)", src.Size())
	}
	if err := src.ReadFull(length[:], 0); err != nil {
		return nil, nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader {
		return nil, nil, formatError("header too long (got %d bytes, the format allows %d)", n, maxHeader)
	}
	if int64(n) > src.Size()-lengthBytes {
		return nil, nil, short("incomplete header (it has %d bytes, the file %d)", n, src.Size())
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

// place checks that the tensors are adjacent, from start to the end of the file.
func place(entries []entry, start, size int64) ([]Info, error) {
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	list := make([]Info, len(entries))
	at := int64(0)
	for i, e := range entries {
		if e.begin != at || e.end < e.begin {
			return nil, about(e.name, formatError("gap or overlap (it is at [%d, %d) of the data, the tensor before it ends at %d)", e.begin, e.end, at))
		}
		at = e.end
		if at > size-start {
			return nil, about(e.name, short("incomplete data (it ends at byte %d, the file has %d)", at, size-start))
		}
		t := Info{Name: e.name, DataType: byName[e.dtype], TypeName: e.dtype, Shape: e.shape, Offset: start + e.begin, NBytes: e.end - e.begin}
		if err := t.check(); err != nil {
			return nil, about(e.name, err)
		}
		list[i] = t
	}
	if at != size-start {
		return nil, formatError("data after the last tensor (the tensors have %d bytes, %d follow the header)", at, size-start)
	}
	return list, nil
}

// check compares the size of a tensor with its shape and element type.
func (i *Info) check() error {
	l, err := usmarray.NewLayout(i.Shape, nil, 0)
	if err != nil {
		return formatError("%w", err)
	}
	if i.DataType == (usmarray.DataType{}) {
		return nil
	}
	want, err := i.DataType.ByteSize(int64(l.Size()), false)
	if err != nil {
		return formatError("%w", err)
	}
	if bits := l.Size() * i.DataType.BitSize(); bits%8 != 0 {
		return formatError("%d elements of %s do not fill whole bytes", l.Size(), i.TypeName)
	}
	if want != i.NBytes {
		return formatError("wrong size (shape %v of %s needs %d bytes, the offsets have %d)", i.Shape, i.TypeName, want, i.NBytes)
	}
	return nil
}

// elements returns the position and layout of the elements.
func (i *Info) elements() (*transfer.Elements, error) {
	if i.DataType == (usmarray.DataType{}) {
		return nil, about(i.Name, transfer.TypeError("arrays do not support the element type %.40q", i.TypeName))
	}
	return &transfer.Elements{At: i.Offset, DataType: i.DataType, Shape: i.Shape, Swap: transfer.SwapFor(false, i.DataType)}, nil
}
