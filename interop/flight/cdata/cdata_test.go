//go:build cgo

package cdata

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/flight/internal/arraytest"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

func TestMain(m *testing.M) { memtest.Main(m) }

// The structs here against the header that arrow-go has from Arrow.
func TestStructsAreThoseOfTheHeader(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: ", err)
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/apache/arrow-go/v18").Output()
	require.NoError(t, err)
	var s Schema
	var a Array
	var d DeviceArray
	lines := []string{"#include <stddef.h>", "#include <stdint.h>", `#include "abi.h"`}
	hold := func(what string, n uintptr) {
		lines = append(lines, fmt.Sprintf("_Static_assert(%s == %d, %q);", what, n, what))
	}
	for name, size := range map[string]uintptr{"Schema": unsafe.Sizeof(s), "Array": unsafe.Sizeof(a), "DeviceArray": unsafe.Sizeof(d)} {
		hold("sizeof(struct Arrow"+name+")", size)
	}
	for field, at := range map[string]uintptr{
		"Schema, format": unsafe.Offsetof(s.format), "Schema, name": unsafe.Offsetof(s.name), "Schema, metadata": unsafe.Offsetof(s.metadata),
		"Schema, flags": unsafe.Offsetof(s.flags), "Schema, n_children": unsafe.Offsetof(s.nChildren), "Schema, children": unsafe.Offsetof(s.children),
		"Schema, dictionary": unsafe.Offsetof(s.dictionary), "Schema, release": unsafe.Offsetof(s.release), "Schema, private_data": unsafe.Offsetof(s.private),
		"Array, length": unsafe.Offsetof(a.length), "Array, null_count": unsafe.Offsetof(a.nullCount), "Array, offset": unsafe.Offsetof(a.offset),
		"Array, n_buffers": unsafe.Offsetof(a.nBuffers), "Array, n_children": unsafe.Offsetof(a.nChildren), "Array, buffers": unsafe.Offsetof(a.buffers),
		"Array, children": unsafe.Offsetof(a.children), "Array, dictionary": unsafe.Offsetof(a.dictionary), "Array, release": unsafe.Offsetof(a.release),
		"Array, private_data": unsafe.Offsetof(a.private),
		"DeviceArray, array":  unsafe.Offsetof(d.Array), "DeviceArray, device_id": unsafe.Offsetof(d.deviceID), "DeviceArray, device_type": unsafe.Offsetof(d.deviceType),
		"DeviceArray, sync_event": unsafe.Offsetof(d.syncEvent), "DeviceArray, reserved": unsafe.Offsetof(d.reserved),
	} {
		hold("offsetof(struct Arrow"+field+")", at)
	}
	hold("ARROW_DEVICE_CPU", DeviceCPU)
	hold("ARROW_DEVICE_ONEAPI", DeviceOneAPI)
	source := filepath.Join(t.TempDir(), "abi.c")
	require.NoError(t, os.WriteFile(source, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	include := filepath.Join(strings.TrimSpace(string(dir)), "arrow", "cdata")
	out, err := exec.Command(cc, "-std=c11", "-fsyntax-only", "-I", include, source).CombinedOutput()
	require.NoErrorf(t, err, "%s", out)
}

// What goes out comes in: one memory, which lives until the last of them is gone.
func TestThereAndBack(t *testing.T) {
	p := arraytest.NewPool(t)
	for _, shape := range [][]int{{6}, {2, 3}, {2, 3, 4}, {1, 1}, {0}, {0, 2}} {
		a := arraytest.Arange(t, p, shape...)
		want, err := usmarray.ToSlice[float32](a)
		require.NoError(t, err)
		var s Schema
		var c Array
		require.NoError(t, Export(a, &s, &c))
		address := a.Pointer()
		a.Release()
		b, err := Import(&s, &c)
		require.NoError(t, err)
		require.True(t, s.Released() && c.Released())
		require.Equal(t, shape, b.Shape())
		require.True(t, b.ReadOnly())
		if b.Size() > 0 {
			require.Equal(t, address, b.Pointer())
		}
		got, err := usmarray.ToSlice[float32](b)
		require.NoError(t, err)
		require.Equal(t, want, got)
		b.Release()
		require.Zero(t, p.Stats().RequestedBytes.Current)
	}
}

func TestPermutation(t *testing.T) {
	p := arraytest.NewPool(t)
	a := arraytest.Arange(t, p, 2, 3, 4)
	defer a.Release()
	view, err := a.Transpose(0, 2, 1)
	require.NoError(t, err)
	var s Schema
	var c Array
	require.NoError(t, Export(view, &s, &c))
	b, err := Import(&s, &c)
	require.NoError(t, err)
	defer b.Release()
	require.Equal(t, view.Shape(), b.Shape())
	require.Equal(t, view.Strides(), b.Strides())
	require.Equal(t, view.Pointer(), b.Pointer())
	rows, err := a.Transpose(1, 0, 2)
	require.NoError(t, err)
	require.ErrorIs(t, Export(rows, &s, &c), usmarrow.ErrLayout)
	require.True(t, s.Released() && c.Released())
}

// arrow-go reads what goes out, and its own exports come in where it makes whole ones.
func TestArrowGo(t *testing.T) {
	p := arraytest.NewPool(t)
	a := arraytest.Arange(t, p, 5, 3)
	var s Schema
	var c Array
	require.NoError(t, Export(a, &s, &c))
	a.Release()
	_, theirs, err := cdata.ImportCArray((*cdata.CArrowArray)(unsafe.Pointer(&c)), (*cdata.CArrowSchema)(unsafe.Pointer(&s)))
	require.NoError(t, err)
	require.IsType(t, &array.FixedSizeList{}, theirs) // arrow-go imports the storage
	require.Equal(t, 5, theirs.Len())
	require.NoError(t, array.ValidateFull(theirs))
	theirs.Release()
	require.Zero(t, p.Stats().RequestedBytes.Current)

	for _, typ := range []arrow.DataType{arrow.PrimitiveTypes.Int32, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32)} {
		c := build(typ, 8)
		column := array.NewSlice(c, 1, 4)
		c.Release()
		var s Schema
		var out Array
		cdata.ExportArrowArray(column, (*cdata.CArrowArray)(unsafe.Pointer(&out)), (*cdata.CArrowSchema)(unsafe.Pointer(&s)))
		column.Release()
		b, err := Import(&s, &out)
		require.NoError(t, err)
		got, err := usmarray.ToSlice[int32](b)
		require.NoError(t, err)
		first := int32(len(got) / 3) // row 1 of 3: value 1, or list [2, 3]
		for i, v := range got {
			require.Equal(t, first+int32(i), v)
		}
		b.Release()
	}
}

func build(typ arrow.DataType, n int) arrow.Array {
	b := array.NewBuilder(mallocator.NewMallocator(), typ)
	defer b.Release()
	for i := range n {
		if list, ok := b.(*array.FixedSizeListBuilder); ok {
			if i%2 == 0 {
				list.Append(true)
			}
			list.ValueBuilder().(*array.Int32Builder).Append(int32(i))
		} else {
			b.(*array.Int32Builder).Append(int32(i))
		}
	}
	return b.NewArray()
}

// A consumer may take a child and release the parent: the memory stays for the child.
func TestMovedChild(t *testing.T) {
	p := arraytest.NewPool(t)
	a := arraytest.Arange(t, p, 2, 3)
	var s Schema
	var c Array
	require.NoError(t, Export(a, &s, &c))
	a.Release()
	schema, child := *childSchema(&s), *childArray(&c)
	childSchema(&s).release, childArray(&c).release = nil, nil
	s.Release()
	c.Release()
	require.True(t, s.Released() && c.Released())
	require.Positive(t, p.Stats().RequestedBytes.Current)
	b, err := Import(&schema, &child)
	require.NoError(t, err)
	require.Equal(t, []int{6}, b.Shape())
	got, err := usmarray.ToSlice[float32](b)
	require.NoError(t, err)
	require.Equal(t, []float32{0, 1, 2, 3, 4, 5}, got)
	b.Release()
	require.Zero(t, p.Stats().RequestedBytes.Current)
}

// Nobody took them: their release gives the memory back, and once.
func TestNobodyTook(t *testing.T) {
	p := arraytest.NewPool(t)
	for _, shape := range [][]int{{6}, {2, 3}} {
		a := arraytest.Arange(t, p, shape...)
		var s Schema
		var d DeviceArray
		require.NoError(t, ExportDevice(a, &s, &d))
		typ, id := d.Device()
		require.EqualValues(t, DeviceCPU, typ)
		require.EqualValues(t, -1, id)
		require.Nil(t, d.SyncEvent())
		a.Release()
		for range 2 {
			s.Release()
			d.Array.Release()
		}
		require.Zero(t, p.Stats().RequestedBytes.Current)
	}
}

// Structs that lie are errors; both are released, and nothing is kept.
func TestStructsThatLie(t *testing.T) {
	p := arraytest.NewPool(t)
	texts := &share{}
	texts.structs.Store(1)
	defer texts.drop()
	text := func(b ...byte) unsafe.Pointer { return texts.bytes(b) }
	for name, change := range map[string]func(s *Schema, a *Array){
		"negative length":        func(_ *Schema, a *Array) { a.length = -1 },
		"negative offset":        func(_ *Schema, a *Array) { a.offset = -1 },
		"length and offset":      func(_ *Schema, a *Array) { a.offset = 1 << 62; a.length = 1 << 62 },
		"rows":                   func(_ *Schema, a *Array) { a.length = 3 },
		"nulls without a bitmap": func(_ *Schema, a *Array) { a.nullCount = 1 },
		"more nulls than rows":   func(_ *Schema, a *Array) { a.nullCount = 9 },
		"no buffers":             func(_ *Schema, a *Array) { a.nBuffers = 0 },
		"buffers nil":            func(_ *Schema, a *Array) { childArray(a).buffers = nil },
		"values nil":             func(_ *Schema, a *Array) { *(*[2]unsafe.Pointer)(childArray(a).buffers) = [2]unsafe.Pointer{} },
		"child's length":         func(_ *Schema, a *Array) { childArray(a).length = 5 },
		"child's offset":         func(_ *Schema, a *Array) { childArray(a).offset = 1<<63 - 1 },
		"no format":              func(s *Schema, _ *Array) { s.format = nil },
		"empty format":           func(s *Schema, _ *Array) { s.format = text(0) },
		"unknown format":         func(s *Schema, _ *Array) { s.format = text('?', 0) },
		"list of size 0":         func(s *Schema, _ *Array) { s.format = text('+', 'w', ':', '0', 0); s.metadata = nil },
		"list of negative size":  func(s *Schema, _ *Array) { s.format = text('+', 'w', ':', '-', '3', 0); s.metadata = nil },
		"other size":             func(s *Schema, _ *Array) { s.format = text('+', 'w', ':', '4', 0) },
		"text":                   func(s *Schema, _ *Array) { childSchema(s).format = text('u', 0); s.metadata = nil },
		"dictionary":             func(s *Schema, _ *Array) { childSchema(s).dictionary = text(1) },
		"many children":          func(s *Schema, _ *Array) { s.nChildren = 1 << 40 },
		"metadata of pairs":      func(s *Schema, _ *Array) { s.metadata = text(0xff, 0xff, 0xff, 0x7f) },
		"metadata of length":     func(s *Schema, _ *Array) { s.metadata = text(1, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f) },
	} {
		t.Run(name, func(t *testing.T) {
			a := arraytest.Arange(t, p, 2, 3)
			var s Schema
			var c Array
			require.NoError(t, Export(a, &s, &c))
			a.Release()
			change(&s, &c)
			b, err := Import(&s, &c)
			require.Error(t, err)
			require.Nil(t, b)
			require.True(t, s.Released() && c.Released())
			require.Zero(t, p.Stats().RequestedBytes.Current)
		})
	}
	for name, want := range map[string]error{"somebody.else": usmarrow.ErrType, usmarrow.TensorName: usmarrow.ErrType} {
		a := arraytest.Arange(t, p, 2, 3)
		var s Schema
		var c Array
		require.NoError(t, Export(a, &s, &c))
		a.Release()
		s.metadata = texts.bytes(append(append([]byte{1, 0, 0, 0, 20, 0, 0, 0}, "ARROW:extension:name"...), append([]byte{byte(len(name)), 0, 0, 0}, name...)...))
		_, err := Import(&s, &c) // a type of another's, and a tensor without parameters
		require.ErrorIs(t, err, want)
		require.True(t, s.Released() && c.Released())
	}
	var s Schema
	var c Array
	_, err := Import(&s, &c)
	require.ErrorIs(t, err, usmarrow.ErrMalformed)
	a := arraytest.Arange(t, p, 3)
	defer a.Release()
	var d DeviceArray
	require.NoError(t, ExportDevice(a, &s, &d))
	d.deviceType = 2
	_, err = ImportDevice(nil, &s, &d)
	require.ErrorIs(t, err, usmarrow.ErrType)
	require.True(t, s.Released() && d.Array.Released())
}

// otherFormats are types of Arrow that no tensor has, with the number of their buffers.
var otherFormats = []struct {
	format  string
	buffers int64
}{
	{"u", 3}, {"U", 3}, {"z", 3}, {"Z", 3}, {"vu", 3}, {"vz", 3},
	{"n", 0}, {"b", 2}, {"w:4", 2}, {"d:9,2", 2}, {"tdD", 2}, {"tts", 2}, {"tDs", 2}, {"tiM", 2},
	{"tss:Europe/Andorra, and what else somebody may write there", 2},
	{"+l", 2}, {"+L", 2}, {"+vl", 3}, {"+vL", 3}, {"+s", 1}, {"+m", 2}, {"+r", 0}, {"+ud:0", 2}, {"+us:0", 1},
	{"?", 2}, {"ii", 2}, {"i:", 2}, {"+", 1}, {"+w", 1}, {"+ww:3", 1},
}

// They are refused by name, as values, as elements and with a list's child.
func TestOtherFormats(t *testing.T) {
	p := arraytest.NewPool(t)
	texts := &share{}
	texts.structs.Store(1)
	defer texts.drop()
	for _, c := range otherFormats {
		for name, change := range map[string]func(s *Schema, a *Array){
			"values": func(s *Schema, a *Array) {
				s.format = texts.text(c.format)
				a.nBuffers, a.buffers = c.buffers, texts.room(3*unsafe.Sizeof(uintptr(0)))
			},
			"list": func(s *Schema, a *Array) {
				s.format, s.metadata = texts.text(c.format), nil
				a.nBuffers, a.buffers = c.buffers, texts.room(3*unsafe.Sizeof(uintptr(0)))
			},
			"elements": func(s *Schema, a *Array) {
				childSchema(s).format, s.metadata = texts.text(c.format), nil
				childArray(a).nBuffers, childArray(a).buffers = c.buffers, texts.room(3*unsafe.Sizeof(uintptr(0)))
			},
		} {
			shape := []int{2, 3}
			if name == "values" {
				shape = []int{6}
			}
			a := arraytest.Arange(t, p, shape...)
			var s Schema
			var d Array
			require.NoError(t, Export(a, &s, &d))
			a.Release()
			change(&s, &d)
			b, err := Import(&s, &d)
			require.ErrorIs(t, err, usmarrow.ErrType, "%s: %q", name, c.format)
			require.Nil(t, b)
			require.True(t, s.Released() && d.Released())
			require.Zero(t, p.Stats().RequestedBytes.Current)
		}
	}
}

// A child that somebody moved out is not the list's any more, and may be gone.
func TestListWithoutItsChild(t *testing.T) {
	p := arraytest.NewPool(t)
	for name, move := range map[string]func(s *Schema, a *Array){
		"schema": func(s *Schema, _ *Array) {
			moved := *childSchema(s)
			childSchema(s).release = nil
			moved.Release()
		},
		"array": func(_ *Schema, a *Array) {
			moved := *childArray(a)
			childArray(a).release = nil
			moved.Release()
		},
	} {
		a := arraytest.Arange(t, p, 2, 3)
		var s Schema
		var c Array
		require.NoError(t, Export(a, &s, &c))
		a.Release()
		move(&s, &c)
		b, err := Import(&s, &c)
		require.ErrorIs(t, err, usmarrow.ErrMalformed, name)
		require.Nil(t, b)
		require.True(t, s.Released() && c.Released(), name)
		require.Zero(t, p.Stats().RequestedBytes.Current, name)
	}
}

// Children, dictionaries and formats that don't go with each other.
func TestStructsOfAnotherShape(t *testing.T) {
	p := arraytest.NewPool(t)
	texts := &share{}
	texts.structs.Store(1)
	defer texts.drop()
	child := func() unsafe.Pointer { return texts.room(unsafe.Sizeof(uintptr(0))) }
	for _, c := range []struct {
		name   string
		shape  []int
		change func(s *Schema, a *Array)
		want   error
	}{
		{"values with an array's child", []int{6}, func(_ *Schema, a *Array) {
			a.nChildren, a.children = 1, texts.room(unsafe.Sizeof(uintptr(0)))
			*(*unsafe.Pointer)(a.children) = texts.room(unsafe.Sizeof(Array{}))
		}, usmarrow.ErrMalformed},
		{"list without a child", []int{6}, func(s *Schema, _ *Array) { s.format = texts.text("+w:3") }, usmarrow.ErrMalformed},
		{"values with a child", []int{2, 3}, func(s *Schema, _ *Array) { s.format = texts.text("f") }, usmarrow.ErrMalformed},
		{"list of lists", []int{2, 3}, func(s *Schema, _ *Array) { childSchema(s).format = texts.text("+w:3") }, usmarrow.ErrType},
		{"size 0", []int{2, 3}, func(s *Schema, _ *Array) { s.format = texts.text("+w:0") }, usmarrow.ErrMalformed},
		{"no size", []int{2, 3}, func(s *Schema, _ *Array) { s.format = texts.text("+w:") }, usmarrow.ErrMalformed},
		{"size beyond all", []int{2, 3}, func(s *Schema, _ *Array) { s.format = texts.text("+w:2147483648") }, usmarrow.ErrMalformed},
		{"size with a sign", []int{2, 3}, func(s *Schema, _ *Array) { s.format = texts.text("+w:+3") }, usmarrow.ErrMalformed},
		{"size behind zeros", []int{2, 3}, func(s *Schema, _ *Array) { // 30, of which 3 was read
			s.format, s.metadata = texts.text("+w:"+strings.Repeat("0", 28)+"30"), nil
		}, usmarrow.ErrMalformed},
		{"an extension's name twice", []int{2, 3}, func(s *Schema, _ *Array) {
			b := []byte{2, 0, 0, 0}
			for _, name := range []string{"somebody.else", ""} {
				b = append(append(b, 20, 0, 0, 0), "ARROW:extension:name"...)
				b = append(append(b, byte(len(name)), 0, 0, 0), name...)
			}
			s.metadata = texts.bytes(b)
		}, usmarrow.ErrMalformed},
		{"size of many digits", []int{2, 3}, func(s *Schema, _ *Array) {
			s.format = texts.text("+w:3000000000000000000000000000000000000000000000000000000000000000000")
		}, usmarrow.ErrMalformed},
		{"empty format", []int{6}, func(s *Schema, _ *Array) { s.format = texts.text("") }, usmarrow.ErrMalformed},
		{"dictionary of the schema", []int{6}, func(s *Schema, _ *Array) { s.dictionary = child() }, usmarrow.ErrType},
		{"dictionary of the array", []int{6}, func(_ *Schema, a *Array) { a.dictionary = child() }, usmarrow.ErrMalformed},
		{"dictionary of the elements", []int{2, 3}, func(_ *Schema, a *Array) { childArray(a).dictionary = child() }, usmarrow.ErrMalformed},
	} {
		a := arraytest.Arange(t, p, c.shape...)
		var s Schema
		var d Array
		require.NoError(t, Export(a, &s, &d))
		a.Release()
		c.change(&s, &d)
		b, err := Import(&s, &d)
		require.ErrorIs(t, err, c.want, c.name)
		require.Nil(t, b, c.name)
		require.True(t, s.Released() && d.Released(), c.name)
		require.Zero(t, p.Stats().RequestedBytes.Current, c.name)
	}
}

func openSYCL(t *testing.T) *syclobj.Runtime {
	t.Helper()
	rt, err := syclobj.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	if !rt.HasSYCL() {
		if os.Getenv("USMBRIDGE_REQUIRE_SYCL") != "" {
			t.Fatal(rt.SYCLError())
		}
		t.Skip("no SYCL (make python, VIRTUAL_ENV=.venv): ", rt.SYCLError())
	}
	return rt
}

// Device memory is ONEAPI's, with the event of the work that was still to be done; it
// comes back as the same memory, which waits for that.
func TestDevice(t *testing.T) {
	rt := openSYCL(t)
	for _, shape := range [][]int{{1 << 20}, {1 << 10, 1 << 10}} {
		pool := memmgr.NewPool(memmgr.USM(rt.DefaultQueue(), syclobj.USMDevice))
		a, err := usmarray.Full(pool, usmarray.Float32, shape, 7)
		require.NoError(t, err)
		var s Schema
		var c Array
		require.ErrorIs(t, Export(a, &s, &c), memmgr.ErrNotHostReadable)
		dev, err := a.DLDevice()
		require.NoError(t, err)
		var d DeviceArray
		require.NoError(t, ExportDevice(a, &s, &d))
		typ, id := d.Device()
		require.EqualValues(t, DeviceOneAPI, typ)
		require.EqualValues(t, dev.ID, id)
		address := a.Pointer()
		a.Release()
		b, err := ImportDevice(rt, &s, &d)
		require.NoError(t, err)
		require.Equal(t, address, b.Pointer())
		require.Equal(t, shape, b.Shape())
		require.False(t, b.Place().HostReadable())
		got, err := usmarray.ToSlice[float32](b)
		require.NoError(t, err)
		require.Len(t, got, 1<<20)
		for _, v := range got {
			require.EqualValues(t, 7, v)
		}
		b.Release()
		require.Zero(t, pool.Stats().RequestedBytes.Current)
		require.NoError(t, pool.Close())
	}
}

// An event of a producer becomes work that the array waits for, and what names no memory
// of its device is refused.
func TestDeviceEvent(t *testing.T) {
	rt := openSYCL(t)
	pool := memmgr.NewPool(memmgr.USM(rt.DefaultQueue(), syclobj.USMDevice))
	defer func() { require.NoError(t, pool.Close()) }()
	a, err := usmarray.Full(pool, usmarray.Float32, []int{1 << 16}, 1)
	require.NoError(t, err)
	defer a.Release()
	q, err := a.Place().Queue()
	require.NoError(t, err)
	ev, err := q.Barrier()
	require.NoError(t, err)
	defer ev.Close()
	require.NoError(t, a.Buffer().SetPending(q, ev))
	var s Schema
	var d DeviceArray
	require.NoError(t, ExportDevice(a, &s, &d))
	require.NotNil(t, d.SyncEvent())
	b, err := ImportDevice(rt, &s, &d)
	require.NoError(t, err)
	require.NoError(t, b.Wait())
	b.Release()

	foreign := &share{}
	foreign.structs.Store(1)
	defer foreign.drop()
	for name, change := range map[string]func(){
		"no such device":  func() { d.deviceID = 1 << 20 },
		"negative device": func() { d.deviceID = -1 },
		"no USM":          func() { *(*[2]unsafe.Pointer)(d.Array.buffers) = [2]unsafe.Pointer{nil, foreign.text("not USM")} },
		"open nulls": func() {
			d.Array.nullCount = -1
			(*(*[2]unsafe.Pointer)(d.Array.buffers))[0] = a.Pointer()
		},
	} {
		require.NoError(t, ExportDevice(a, &s, &d))
		change()
		_, err = ImportDevice(rt, &s, &d)
		require.Error(t, err, name)
		require.True(t, s.Released() && d.Array.Released(), name)
	}
	require.EqualValues(t, 4<<16, pool.Stats().RequestedBytes.Current)
}
