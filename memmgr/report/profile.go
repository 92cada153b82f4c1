package report

import (
	"compress/gzip"
	"io"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
)

// WriteProfile writes a profile of the memory that is referenced now, by place
// of allocation, in objects and bytes: gzipped profile.proto, which `go tool
// pprof` opens. Memory whose place was not recorded ([memmgr.RecordStacks]) is summed under
// one frame. Labels are the tag and the place of the memory.
func WriteProfile(w io.Writer) error {
	b := newProfileBuilder()
	for _, live := range memmgr.Live() {
		size := live.Size
		if size == memmgr.UnknownSize {
			size = 0
		}
		place := "host memory"
		if live.Place != nil {
			place = live.Place.String()
		}
		b.add(live.Stack, live.Tag, place, size)
	}
	z := gzip.NewWriter(w)
	if _, err := z.Write(b.encode()); err != nil {
		return err
	}
	return z.Close()
}

// profileBuilder makes a profile.proto message (github.com/google/pprof,
// proto/profile.proto). Field numbers are in the calls.
type profileBuilder struct {
	strings   []string
	numbers   map[string]int64
	samples   map[profileKey]*profileSample
	order     []profileKey
	functions map[string]uint64
	locations map[string]uint64
	funcs     message
	locs      message
}

type profileKey struct {
	stack      *uintptr // each place has one array of addresses
	tag, place string
}

type profileSample struct {
	stack          memmgr.Stack
	objects, bytes int64
}

func newProfileBuilder() *profileBuilder {
	b := &profileBuilder{
		numbers: map[string]int64{}, samples: map[profileKey]*profileSample{},
		functions: map[string]uint64{}, locations: map[string]uint64{},
	}
	b.string("")
	return b
}

func (b *profileBuilder) string(s string) int64 {
	if n, ok := b.numbers[s]; ok {
		return n
	}
	n := int64(len(b.strings))
	b.strings = append(b.strings, s)
	b.numbers[s] = n
	return n
}

func (b *profileBuilder) add(stack memmgr.Stack, tag, place string, bytes uint64) {
	k := profileKey{unsafe.SliceData(stack), tag, place}
	s := b.samples[k]
	if s == nil {
		s = &profileSample{stack: stack}
		b.samples[k] = s
		b.order = append(b.order, k)
	}
	s.objects++
	s.bytes += int64(bytes)
}

// location returns the number of a frame.
func (b *profileBuilder) location(f runtime.Frame) uint64 {
	key := f.Function + "\x00" + f.File
	fn, ok := b.functions[key]
	if !ok {
		fn = uint64(len(b.functions) + 1)
		b.functions[key] = fn
		var m message
		m.uint(1, fn)
		m.int(2, b.string(f.Function))
		m.int(3, b.string(f.Function))
		m.int(4, b.string(f.File))
		b.funcs.message(5, m)
	}
	key += "\x00" + strconv.Itoa(f.Line)
	loc, ok := b.locations[key]
	if !ok {
		loc = uint64(len(b.locations) + 1)
		b.locations[key] = loc
		var line, m message
		line.uint(1, fn)
		line.int(2, int64(f.Line))
		m.uint(1, loc)
		m.message(4, line)
		b.locs.message(4, m)
	}
	return loc
}

func (b *profileBuilder) stack(stack memmgr.Stack) (locations []uint64) {
	if len(stack) == 0 {
		return []uint64{b.location(runtime.Frame{Function: "(place of allocation not recorded)"})}
	}
	for f := range stack.Frames() {
		locations = append(locations, b.location(f))
	}
	return locations
}

func (b *profileBuilder) encode() []byte {
	var m message
	for _, sort := range [][2]string{{"inuse_objects", "count"}, {"inuse_space", "bytes"}} {
		var v message
		v.int(1, b.string(sort[0]))
		v.int(2, b.string(sort[1]))
		m.message(1, v)
	}
	for _, k := range b.order {
		var s message
		s.packed(1, b.stack(b.samples[k].stack))
		s.packed(2, []uint64{uint64(b.samples[k].objects), uint64(b.samples[k].bytes)})
		for _, label := range [][2]string{{"tag", k.tag}, {"place", k.place}} {
			if label[1] == "" {
				continue
			}
			var l message
			l.int(1, b.string(label[0]))
			l.int(2, b.string(label[1]))
			s.message(3, l)
		}
		m.message(2, s)
	}
	m.b = append(m.b, b.locs.b...)
	m.b = append(m.b, b.funcs.b...)
	space := b.string("inuse_space")
	for _, s := range b.strings {
		m.bytes(6, []byte(s))
	}
	m.int(9, time.Now().UnixNano())
	m.int(14, space)
	return m.b
}

// message is a protocol buffer in the making.
type message struct{ b []byte }

func (m *message) varint(v uint64) {
	for v >= 0x80 {
		m.b = append(m.b, byte(v)|0x80)
		v >>= 7
	}
	m.b = append(m.b, byte(v))
}

func (m *message) uint(field int, v uint64) {
	m.varint(uint64(field) << 3)
	m.varint(v)
}

func (m *message) int(field int, v int64) { m.uint(field, uint64(v)) }

func (m *message) bytes(field int, v []byte) {
	m.varint(uint64(field)<<3 | 2)
	m.varint(uint64(len(v)))
	m.b = append(m.b, v...)
}

func (m *message) message(field int, v message) { m.bytes(field, v.b) }

func (m *message) packed(field int, values []uint64) {
	var p message
	for _, v := range values {
		p.varint(v)
	}
	m.bytes(field, p.b)
}
