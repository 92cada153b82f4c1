//go:build cgo && unix

package cdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/flight/internal/ending"
	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/usmarray"
)

// A window is pages of C's, each before one that nobody may touch: what lies at the end of
// a page is exactly as long as it is said to be.
type window struct {
	memory []byte
	pages  int
	used   int
}

func newWindow(f *testing.F, pages int) *window {
	size := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 2*pages*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, syscall.Munmap(memory)) })
	for i := range pages {
		require.NoError(f, syscall.Mprotect(memory[(2*i+1)*size:(2*i+2)*size], syscall.PROT_NONE))
	}
	return &window{memory: memory, pages: pages}
}

// room is so many bytes before a guard page, or so many more before it.
func (w *window) room(size, before int) []byte {
	page := os.Getpagesize()
	end := (2*w.used+1)*page - before
	w.used++
	return w.memory[end-size : end : end]
}

// nowhere is an address that nobody may read.
func (w *window) nowhere() unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(w.memory)), os.Getpagesize())
}

func address(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// choices are made by the bytes of an input; without more of them the usual one is made.
type choices struct{ bytes []byte }

func (c *choices) next() int {
	if len(c.bytes) == 0 {
		return 0
	}
	b := c.bytes[0]
	c.bytes = c.bytes[1:]
	return int(b)
}

func (c *choices) rarely() bool { return c.next() >= 0xf0 }

func (c *choices) text() string {
	n := min(c.next()%48, len(c.bytes))
	t := c.bytes[:n]
	c.bytes = c.bytes[n:]
	return string(bytes.ReplaceAll(t, []byte{0}, nil))
}

// number is mostly the usual one.
func (c *choices) number(usual int64) int64 {
	switch k := c.next(); {
	case k < 0xc0:
		return usual
	case k < 0xe0:
		return int64(int8(c.next()))
	case k < 0xf0:
		return []int64{math.MaxInt64, math.MinInt64, 1 << 62, 1<<62 - 3, 1 << 57, 1<<57 - 8, 1 << 54, 1<<60 + 1, 1 << 31, -2, math.MaxInt64 - 7, 1 << 40}[c.next()%12]
	default:
		var b [8]byte
		for i := range b {
			b[i] = byte(c.next())
		}
		return int64(binary.LittleEndian.Uint64(b[:]))
	}
}

// tensorSays is what the parameters of a tensor say.
type tensorSays struct {
	shape, permutation []int
	wrong              bool // text that is none of a tensor's
}

// metadataSays is what a schema's metadata says.
type metadataSays struct {
	bytes     []byte // nil: there is none
	broken    bool   // a count that cannot be, or a name that comes twice
	extension string // "" for none
	tensor    tensorSays
}

func (c *choices) tensor(size int) (text string, says tensorSays) {
	if c.rarely() {
		says.wrong = true
		return []string{"", "{", "{}", `{"shape":null}`, `{"SHAPE":[1]}`, `{"shape":[1],"shape":[1]}`, `{"shape":[0]}`, "[1]", `{"shape":[1]}x`, `{"shape":[-1,-1]}`}[c.next()%10], says
	}
	for left := size; left > 1 && len(says.shape) < 4; {
		d := 1 + c.next()%6
		if left%d != 0 && !c.rarely() {
			d = left
		}
		says.shape = append(says.shape, d)
		left /= d
	}
	text = `{"shape":` + numbers(says.shape)
	if k := c.next(); k >= 0x80 {
		for i := range says.shape {
			says.permutation = append(says.permutation, (i+k)%len(says.shape))
		}
		if len(says.permutation) > 0 && c.rarely() {
			says.permutation[0] = int(int8(c.next()))
		}
		text += `,"permutation":` + numbers(says.permutation)
		if says.permutation == nil {
			says.permutation = []int{}
		}
	}
	return text + "}", says
}

func numbers(n []int) string {
	return "[" + strings.Trim(strings.ReplaceAll(fmt.Sprint(n), " ", ","), "[]") + "]"
}

// metadata has the extension type that is usual, or pairs of all sorts.
func (c *choices) metadata(usual string, size int) (m metadataSays) {
	var pairs [][2]string
	const nameKey, parametersKey = "ARROW:extension:name", "ARROW:extension:metadata"
	if usual == "" && c.next() < 0xd0 {
		return m
	}
	extension, parameters := usual, ""
	if usual == "" || c.rarely() {
		extension = []string{"", "somebody.else", usmarrow.TensorName, usmarrow.TensorName + "s"}[c.next()%4]
	}
	parameters, m.tensor = c.tensor(size)
	if !c.rarely() {
		pairs = append(pairs, [2]string{nameKey, extension})
		m.extension = extension
		if extension == "" {
			m.extension = "no name" // which is a name that is known to nobody
		}
	}
	if !c.rarely() {
		pairs = append(pairs, [2]string{parametersKey, parameters})
	} else {
		m.tensor = tensorSays{wrong: true}
	}
	for range c.next() / 0x40 {
		key := c.text()
		if key == nameKey || key == parametersKey {
			key += "s"
		}
		pairs = append(pairs, [2]string{key, c.text()})
	}
	if c.rarely() && len(pairs) > 0 {
		k := c.next() % len(pairs)
		m.broken = pairs[k][0] == nameKey || pairs[k][0] == parametersKey
		pairs = append(pairs, pairs[k])
	}
	if c.rarely() {
		slices.Reverse(pairs)
	}
	wild := -1
	if c.rarely() {
		wild = c.next() % (2*len(pairs) + 1)
		m.broken = true
	}
	bad := func(most int32) uint32 {
		return uint32([]int32{-1, math.MinInt32, math.MaxInt32, most + 1}[c.next()%4])
	}
	if wild == 0 {
		m.bytes = binary.NativeEndian.AppendUint32(nil, bad(maxPairs))
		return m
	}
	m.bytes = binary.NativeEndian.AppendUint32(nil, uint32(len(pairs)))
	for i, p := range pairs {
		for k, text := range p {
			if 2*i+k+1 == wild {
				m.bytes = binary.NativeEndian.AppendUint32(m.bytes, bad(maxText))
				return m
			}
			m.bytes = append(binary.NativeEndian.AppendUint32(m.bytes, uint32(len(text))), text...)
		}
	}
	return m
}

// A node is a schema and an array: a column, or the elements of its lists.
type node struct {
	format                   string
	noFormat                 bool
	metadata                 metadataSays
	schemaEnded, schemaWords bool // released; a dictionary
	schemaChildren           int64
	schemaList               int // of children: 0 as it is said, 1 NULL, 2 one that is NULL
	arrayEnded, arrayWords   bool
	length, offset, nulls    int64
	buffers                  int64
	noBuffers, noValues      bool
	bitmap                   []byte // nil for none
	shift                    int    // of the values from where they would be aligned
	values                   []byte
	valuesAt                 uintptr
	arrayChildren            int64
	arrayList                int
	list                     int32          // elements by the format; 0 for values
	typ                      arrow.DataType // of values by the format; nil for none
	formatKind               error          // what is wrong with the format
}

var listFormat = regexp.MustCompile(`^\+w:[0-9]+$`)

// readsFormat is what the specification says of a format, within our bounds.
func (n *node) readsFormat() {
	switch {
	case n.noFormat || n.format == "":
		n.formatKind = usmarrow.ErrMalformed
	case strings.HasPrefix(n.format, "+w:"):
		size, err := strconv.ParseUint(n.format[3:], 10, 64)
		if err != nil || !listFormat.MatchString(n.format) || size < 1 || size > math.MaxInt32 || len(n.format) >= maxFormat {
			n.formatKind = usmarrow.ErrMalformed
			return
		}
		n.list = int32(size)
	default:
		for id, f := range formats {
			if f == n.format {
				n.typ = types[f]
				if n.typ.ID() != id {
					panic("formats and types differ")
				}
			}
		}
		if n.typ == nil {
			n.formatKind = usmarrow.ErrType
		}
	}
}

// wish makes a node that is mostly right.
func (c *choices) wish(list bool, size int, length int64) *node {
	n := &node{length: c.number(length), buffers: 2}
	n.format = string("iflgcCsSILe"[c.next()%11])
	if list {
		n.format, n.buffers = fmt.Sprintf("+w:%d", size), 1
		n.schemaChildren, n.arrayChildren = 1, 1
	}
	switch k := c.next(); {
	case k >= 0xf8:
		n.format = c.text()
	case k >= 0xf0:
		n.format = otherFormats[c.next()%len(otherFormats)].format
	case k == 0xef:
		n.noFormat = true
	case k >= 0xe8:
		n.format = []string{"+w:", "+w:0", "+w:-3", "+w:+3", "+w:03", "+w: 3", "+w:2147483648", "+w:2147483647", "+w:" + strings.Repeat("0", 28) + "31", "+w:" + strings.Repeat("0", 27) + "3", "+w:3,4", ""}[c.next()%12]
	}
	n.readsFormat()
	usual := ""
	if list && c.next()&1 == 0 {
		usual = usmarrow.TensorName
	}
	n.metadata = c.metadata(usual, size)
	n.schemaEnded, n.schemaWords = c.rarely(), c.rarely()
	n.schemaChildren = c.number(n.schemaChildren)
	n.arrayEnded, n.arrayWords = c.rarely(), c.rarely()
	n.offset = c.number(int64(c.next() % 4))
	n.nulls = c.number(0)
	n.buffers = c.number(n.buffers)
	n.noBuffers, n.noValues = c.rarely(), c.rarely()
	n.arrayChildren = c.number(n.arrayChildren)
	if c.rarely() {
		n.schemaList = c.next() % 3
	}
	if c.rarely() {
		n.arrayList = c.next() % 3
	}
	if c.rarely() {
		n.shift = c.next() % 8
	}
	if k := c.next(); k >= 0x80 {
		n.bitmap = make([]byte, 0)
		if end, ok := n.end(); ok && end <= 1<<14 {
			for range (end + 7) / 8 {
				b := byte(0xff)
				if k >= 0xc0 {
					b = byte(^c.next())
				}
				n.bitmap = append(n.bitmap, b)
			}
		} else if ok {
			n.nulls = 0 // then it has to be as long, and is read
		}
	}
	return n
}

// end is the end of what an array has, where that is a number.
func (n *node) end() (int64, bool) {
	return n.offset + n.length, n.length >= 0 && n.offset >= 0 && n.length <= math.MaxInt64-n.offset
}

// schema writes a node's schema.
func (n *node) schema(w *window, o *ending.Owner, child *Schema) Schema {
	own := func(b []byte, what string) unsafe.Pointer {
		copy(b, what)
		o.Own(address(b), uintptr(len(b)))
		return address(b)
	}
	s := Schema{name: w.nowhere(), flags: -1, nChildren: n.schemaChildren, children: w.nowhere(), private: uintptr(unsafe.Pointer(o))}
	if !n.noFormat {
		s.format = own(w.room(len(n.format)+1, 0), n.format+"\x00")
	}
	if n.metadata.bytes != nil {
		s.metadata = own(w.room(len(n.metadata.bytes), 0), string(n.metadata.bytes))
	}
	if n.schemaWords {
		s.dictionary = w.nowhere()
	}
	if !n.schemaEnded {
		s.release = ending.Schema()
	}
	if n.schemaChildren == 1 {
		s.children = own(w.room(8, 0), "\x00\x00\x00\x00\x00\x00\x00\x00")
		if child != nil && n.schemaList != 2 {
			*(**Schema)(s.children) = child
		}
	}
	if n.schemaList == 1 {
		s.children = nil
	}
	return s
}

// array writes a node's array.
func (n *node) array(w *window, o *ending.Owner, child *Array) Array {
	a := Array{length: n.length, nullCount: n.nulls, offset: n.offset, nBuffers: n.buffers, nChildren: n.arrayChildren,
		buffers: w.nowhere(), children: w.nowhere(), private: uintptr(unsafe.Pointer(o))}
	own := func(b []byte) unsafe.Pointer {
		o.Own(address(b), uintptr(len(b)))
		return address(b)
	}
	if n.arrayWords {
		a.dictionary = w.nowhere()
	}
	if !n.arrayEnded {
		a.release = ending.Array()
	}
	if n.arrayChildren == 1 {
		a.children = own(w.room(8, 0))
		*(**Array)(a.children) = nil
		if child != nil && n.arrayList != 2 {
			*(**Array)(a.children) = child
		}
	}
	if n.arrayList == 1 {
		a.children = nil
	}
	if n.noBuffers {
		a.buffers = nil
	} else if n.buffers == 1 || n.buffers == 2 {
		a.buffers = own(w.room(int(8*n.buffers), 0))
		list := unsafe.Slice((*unsafe.Pointer)(a.buffers), n.buffers)
		clear(list)
		if n.bitmap != nil {
			b := w.room(len(n.bitmap), 0)
			copy(b, n.bitmap)
			list[0] = own(b)
		}
		if n.buffers == 2 && !n.noValues {
			size := 64
			if end, ok := n.end(); ok && n.typ != nil && end <= 256 {
				size = int(end) * n.width()
			}
			n.values = w.room(size, n.shift)
			for i := range n.values {
				n.values[i] = byte(i*7 + i>>8)
			}
			list[1] = own(n.values)
			n.valuesAt = uintptr(list[1])
		}
	}
	return a
}

func (n *node) width() int { return n.typ.(arrow.FixedWidthDataType).Bytes() }

// kinds are the errors that are right.
type kinds []error

func (k *kinds) when(wrong bool, kind error) {
	if wrong {
		*k = append(*k, kind)
	}
}

// wrongSchema is what is wrong with a column's schema.
func wrongSchema(top, child *node) (k kinds) {
	const malformed, typ = 0, 1
	kind := []error{usmarrow.ErrMalformed, usmarrow.ErrType}
	one := func(n *node, nested bool) {
		k.when(n.schemaEnded, kind[malformed])
		k.when(n.schemaWords, kind[typ])
		k.when(n.formatKind != nil, n.formatKind)
		k.when(n.list == 0 && n.schemaChildren != 0, kind[malformed])
		k.when(n.list > 0 && nested, kind[typ])
		k.when(n.metadata.broken, kind[malformed])
	}
	one(top, false)
	if len(k) > 0 || top.list == 0 {
		return k
	}
	k.when(top.schemaChildren != 1 || top.schemaList != 0 || child == nil, kind[malformed])
	if len(k) == 0 {
		one(child, true)
		k.when(child.metadata.extension != "" && !child.metadata.broken, kind[typ])
	}
	return k
}

// wrongTensor is what is wrong with the extension type of a column.
func wrongTensor(top *node) (k kinds) {
	says := top.metadata.tensor
	switch {
	case top.metadata.extension == "":
		return nil
	case top.metadata.extension != usmarrow.TensorName || says.wrong || top.list == 0:
		return kinds{usmarrow.ErrType}
	}
	product := int64(1)
	for _, d := range says.shape {
		product *= int64(d)
	}
	k.when(product != int64(top.list), usmarrow.ErrType)
	for i := range says.permutation {
		k.when(!slices.Contains(says.permutation, i), usmarrow.ErrType)
	}
	return k
}

// wrongArray is what is wrong with a column's array, whose schema is right.
func wrongArray(top, child *node) (k kinds) {
	malformed := usmarrow.ErrMalformed
	one := func(n *node) {
		end, counts := n.end()
		k.when(n.arrayEnded || n.arrayWords || !counts || n.nulls < -1 || n.nulls > n.length || n.noBuffers, malformed)
		k.when(n.nulls > 0 && n.bitmap == nil, malformed)
		k.when(counts && end/8 >= maxBytes, malformed)
		if n.list > 0 {
			k.when(n.buffers != 1 || n.arrayChildren != 1 || n.arrayList != 0 || child == nil, malformed)
			return
		}
		k.when(n.buffers != 2 || n.arrayChildren != 0, malformed)
		k.when(n.noValues && n.length > 0, malformed)
		k.when(counts && end > maxBytes/int64(n.width()), malformed)
	}
	one(top)
	values, first, elements := top, top.offset, top.length
	if top.list > 0 && child != nil {
		one(child)
		end, counts := top.end()
		k.when(counts && child.length >= 0 && end > child.length/int64(top.list), malformed)
		values, first, elements = child, top.offset*int64(top.list)+child.offset, top.length*int64(top.list)
	}
	if _, counts := top.end(); counts {
		k.when(top.missing(top.offset, top.length), usmarrow.ErrNulls)
	}
	if values != top && len(k) == 0 {
		k.when(values.missing(first, elements), usmarrow.ErrNulls)
	}
	return k
}

// missing says whether any of so many elements is null, for somebody who counts.
func (n *node) missing(first, elements int64) bool {
	if n.nulls == 0 || n.bitmap == nil || elements <= 0 || first+elements > int64(8*len(n.bitmap)) {
		return false
	}
	for i := first; i < first+elements; i++ {
		if n.bitmap[i/8]>>(i%8)&1 == 0 {
			return true
		}
	}
	return false
}

// importShows compares an array with the column that it was made of.
func importShows(t *testing.T, b *usmarray.Array, top, child *node) {
	values, first, row := top, top.offset, []int{}
	if top.list > 0 {
		values, first, row = child, top.offset*int64(top.list)+child.offset, []int{int(top.list)}
		if top.metadata.extension != "" {
			row = top.metadata.tensor.shape
		}
	}
	stored := append([]int{int(top.length)}, row...)
	strides := make([]int, len(stored))
	n := 1
	for i, d := range slices.Backward(stored) {
		strides[i] = n
		n *= d
	}
	shape, steps := slices.Clone(stored), slices.Clone(strides)
	if top.metadata.extension != "" {
		for i, p := range top.metadata.tensor.permutation {
			shape[i+1], steps[i+1] = stored[p+1], strides[p+1]
		}
	}
	dtype, err := usmarrow.DataType(values.typ)
	require.NoError(t, err)
	require.Equal(t, dtype, b.DataType())
	require.Equal(t, shape, b.Shape())
	require.True(t, b.ReadOnly())
	if n == 0 {
		return
	}
	require.Equal(t, steps, b.Strides())
	from := uintptr(first) * uintptr(values.width())
	require.Equal(t, values.valuesAt+from, uintptr(b.Pointer()))
	if size := b.NBytes(); int(from)+size <= len(values.values) {
		got, err := b.Buffer().Bytes()
		require.NoError(t, err)
		require.Equal(t, size, len(got))
		for i, v := range got {
			at := int(from) + i
			require.True(t, v == byte(at*7+at>>8), "byte %d of the elements", i)
		}
	}
}

// FuzzImport makes columns of structs whose fields, texts, lists and buffers the input
// chooses, in memory that ends where it is said to end: what a model of the interface takes
// is an array of that shape in that memory, anything else an error of the right kind, and
// each struct is released once, when its time has come.
func FuzzImport(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1})
	f.Add([]byte{1, 5, 2, 0, 0, 0, 1})
	f.Add(bytes.Repeat([]byte{0x80}, 64))
	f.Add(bytes.Repeat([]byte{0xc1, 3, 0x10}, 32))
	f.Add(append([]byte{1, 2}, bytes.Repeat([]byte{0, 0x83, 0, 0xff}, 40)...))
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	pages := newWindow(f, 24)
	f.Fuzz(func(t *testing.T, input []byte) {
		c, w := &choices{input}, pages
		w.used = 0
		ways := c.next()
		list, size := ways&1 == 1, 1+c.next()%6
		length := int64(c.next() % 5)
		top := c.wish(list, size, length)
		var child *node
		if list {
			child = c.wish(false, size, (length+4)*int64(size))
		}

		var owners [4]*ending.Owner // schema, array, and of the elements
		for i := range owners {
			owners[i] = (*ending.Owner)(address(w.room(int(unsafe.Sizeof(ending.Owner{})), 0)))
			*owners[i] = ending.Owner{}
		}
		var innerSchema *Schema
		var innerArray *Array
		if child != nil {
			room := w.room(int(unsafe.Sizeof(Schema{})), 0)
			innerSchema = (*Schema)(address(room))
			*innerSchema = child.schema(w, owners[0], nil)
			innerSchema.private = uintptr(unsafe.Pointer(owners[2]))
			owners[0].Own(address(room), uintptr(len(room)))
			room = w.room(int(unsafe.Sizeof(Array{})), 0)
			innerArray = (*Array)(address(room))
			*innerArray = child.array(w, owners[1], nil)
			innerArray.private = uintptr(unsafe.Pointer(owners[3]))
			owners[1].Own(address(room), uintptr(len(room)))
		}
		s := top.schema(w, owners[0], innerSchema)
		d := DeviceArray{Array: top.array(w, owners[1], innerArray)}

		right := wrongSchema(top, child)
		if len(right) == 0 {
			right = append(wrongTensor(top), wrongArray(top, child)...)
		}
		var b *usmarray.Array
		var err error
		if ways>>1&1 == 0 {
			b, err = Import(&s, &d.Array)
		} else {
			d.deviceID, d.deviceType = c.number(-1), DeviceCPU
			switch k := c.next(); {
			case k >= 0xf0:
				d.deviceType = int32(c.number(DeviceOneAPI))
				right = kinds{usmarrow.ErrType}
				switch d.deviceType {
				case DeviceCPU:
					d.deviceType++ // CUDA's
				case DeviceOneAPI: // of no number that there is
					d.deviceID = min(-1, d.deviceID)
					right = kinds{usmarrow.ErrMalformed}
				}
			case k >= 0xe0:
				d.syncEvent = w.nowhere()
				right = kinds{usmarrow.ErrMalformed}
			}
			b, err = ImportDevice(nil, &s, &d)
		}
		once := func(n int64, given bool) int64 {
			if !given {
				return 0
			}
			return n
		}
		require.True(t, s.Released() && d.Array.Released(), "they were moved")
		require.Equal(t, once(1, !top.schemaEnded), owners[0].Ended, "releases of the schema")
		if len(right) > 0 {
			require.Error(t, err, "right are %v for %+v and %+v", right, top, child)
			require.Nil(t, b)
			require.True(t, slices.ContainsFunc(right, func(kind error) bool { return errors.Is(err, kind) }), "%v; right are %v", err, right)
		} else {
			require.NoError(t, err)
			held := top.bitmap != nil || top.valuesAt != 0
			if top.list > 0 {
				held = held || child.bitmap != nil || child.valuesAt != 0
			}
			if held { // else nothing of the producer's is needed any more
				require.Zero(t, owners[1].Ended, "the array lives")
			}
			importShows(t, b, top, child)
			b.Release()
		}
		require.Equal(t, once(1, !top.arrayEnded), owners[1].Ended, "releases of the array")
		require.Zero(t, owners[2].Ended+owners[3].Ended, "releases of what goes with its parent")
	})
}
