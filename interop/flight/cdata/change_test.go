//go:build cgo

package cdata

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/flight/internal/arraytest"
	"github.com/usmbridge/usmbridge/usmarray"
)

// scrawl is a producer that writes over all that it handed out once it was checked: the
// structs, what they point to, the texts. What it kept is what it has to release itself.
type scrawl struct {
	texts  *share
	schema Schema // the elements', as they were
	array  Array
}

func (x *scrawl) overSchema(s *Schema) {
	format, metadata, children, nested := s.format, s.metadata, s.children, s.nChildren > 0
	*(*[2]byte)(format) = [2]byte{'z', 0}
	if metadata != nil {
		*(*[8]byte)(metadata) = [8]byte{0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f}
	}
	if nested {
		child := childSchema(s)
		x.schema = *child
		x.overSchema(child)
		*(*unsafe.Pointer)(children) = x.texts.room(unsafe.Sizeof(Schema{}))
	}
	nowhere := x.texts.room(8)
	*s = Schema{format: nowhere, metadata: nowhere, nChildren: 9, children: nowhere, dictionary: nowhere}
}

func (x *scrawl) overArray(a *Array) {
	nowhere := x.texts.room(8)
	for i := range unsafe.Slice((*unsafe.Pointer)(a.buffers), a.nBuffers) {
		*(*unsafe.Pointer)(unsafe.Add(a.buffers, uintptr(i)*unsafe.Sizeof(nowhere))) = nil
	}
	if a.nChildren > 0 {
		child := childArray(a)
		x.array = *child
		children := a.children
		x.overArray(child)
		*(*unsafe.Pointer)(children) = x.texts.room(unsafe.Sizeof(Array{}))
	}
	*a = Array{length: 1 << 40, nullCount: 7, offset: -5, nBuffers: 3, nChildren: 9, buffers: nil, children: nowhere, dictionary: nowhere}
}

// What was read is what is used: a producer that changes its structs after the checks
// changes nothing.
func TestStructsThatChange(t *testing.T) {
	p := arraytest.NewPool(t)
	defer func() { afterRead = nil }()
	for _, shape := range [][]int{{6}, {2, 3}, {2, 3, 4}} {
		for name, importing := range map[string]func(s *Schema, d *DeviceArray) (*usmarray.Array, error){
			"Import":       func(s *Schema, d *DeviceArray) (*usmarray.Array, error) { return Import(s, &d.Array) },
			"ImportDevice": func(s *Schema, d *DeviceArray) (*usmarray.Array, error) { return ImportDevice(nil, s, d) },
		} {
			a := arraytest.Arange(t, p, shape...)
			want, err := usmarray.ToSlice[float32](a)
			require.NoError(t, err)
			var s Schema
			var d DeviceArray
			require.NoError(t, ExportDevice(a, &s, &d))
			a.Release()
			x := &scrawl{texts: &share{}}
			x.texts.structs.Store(1)
			written := s
			array := d.Array
			afterRead = func() {
				require.True(t, s.Released() && d.Array.Released(), "they were moved")
				x.overSchema(&written) // by the producer's own pointers
				x.overArray(&array)
				s, d = Schema{format: written.format, nChildren: 9}, DeviceArray{Array: array, deviceID: 1 << 40, deviceType: 99}
			}
			b, err := importing(&s, &d)
			require.NoError(t, err, name)
			require.Equal(t, shape, b.Shape())
			got, err := usmarray.ToSlice[float32](b)
			require.NoError(t, err)
			require.Equal(t, want, got, name)
			b.Release()
			schema, elements := x.schema, x.array // C sees no more than the struct
			schema.Release()
			elements.Release()
			x.texts.drop()
			require.Zero(t, p.Stats().RequestedBytes.Current, name)
		}
	}
}

// Lengths that no memory has are refused before anything is made of them.
func TestExtentsBeyondMemory(t *testing.T) {
	p := arraytest.NewPool(t)
	for name, change := range map[string]func(a *Array){
		"length":        func(a *Array) { a.length = 1 << 62 },
		"offset":        func(a *Array) { a.offset = 1<<62 - 3 },
		"bitmap":        func(a *Array) { a.length, a.nullCount = 1<<63-1, -1 },
		"all":           func(a *Array) { a.length, a.offset = 1<<63-1-7, 7 },
		"a bit too far": func(a *Array) { a.length = maxBytes / 4 * 3 },
	} {
		for _, bits := range []bool{false, true} {
			a := arraytest.Arange(t, p, 6)
			var s Schema
			var c Array
			require.NoError(t, Export(a, &s, &c))
			if bits {
				*(*unsafe.Pointer)(c.buffers) = a.Pointer()
			}
			a.Release()
			change(&c)
			b, err := Import(&s, &c)
			require.Error(t, err, name)
			require.Nil(t, b)
			require.True(t, s.Released() && c.Released())
			require.Zero(t, p.Stats().RequestedBytes.Current)
		}
	}
}
