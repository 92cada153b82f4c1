package memmgr_test

import (
	"bytes"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// FuzzPool runs scripts of allocations, references, releases, export and trimming on a pool with a
// limit, and on a model of the pool: a list of the blocks in use with their contents. Blocks in use are
// disjoint, aligned and unchanged, the counters agree with the model, requests that must fit succeed, and
// impossible ones fail.
func FuzzPool(f *testing.F) {
	f.Add(uint8(0), []byte{0, 10, 0, 0, 20, 3, 1, 0, 0, 2, 0, 0, 6, 0, 0, 0, 200, 9, 2, 1, 0})
	f.Add(uint8(1), []byte{0, 255, 0, 0, 255, 1, 2, 0, 0, 7, 0, 0, 0, 255, 12, 3, 0, 0, 4, 0, 0, 5, 0, 0})
	f.Add(uint8(7), bytes.Repeat([]byte{0, 90, 4, 0, 130, 5, 2, 3, 0, 8, 1, 0}, 20))
	f.Add(uint8(2), bytes.Repeat([]byte{0, 180, 0, 4, 0, 0, 5, 1, 0, 2, 0, 0}, 12))
	f.Fuzz(func(t *testing.T, options uint8, script []byte) {
		m := newPoolModel(t, options)
		for ; len(script) >= 3 && m.steps < 120; script = script[3:] {
			m.steps++
			m.step(script[0], script[1], script[2])
		}
		m.end()
	})
}

const (
	fuzzLimit = 4 << 20
	// An empty pool has room for a request of so many bytes, whatever the sizes of its segments.
	fuzzFits = 1 << 20
)

// held is a block in use in the model.
type held struct {
	buffer memmgr.Buffer
	at     uintptr
	size   int
	refs   int
	seed   byte
	shown  bool // exported
}

type poolModel struct {
	t     *testing.T
	pool  *memmgr.Pool
	held  []*held
	gone  []memmgr.Buffer // released for the last time
	steps int
	seed  byte
}

func newPoolModel(t *testing.T, options uint8) *poolModel {
	o := []memmgr.PoolOption{memmgr.WithLimit(fuzzLimit)}
	if options&1 != 0 {
		o = append(o, memmgr.WithSegment(64<<10))
	}
	if options&2 != 0 {
		o = append(o, memmgr.WithCache(0))
	}
	if options&4 != 0 {
		o = append(o, memmgr.WithRetention(1<<20, 1<<18))
	}
	return &poolModel{t: t, pool: memmgr.NewPool(memmgr.Host(), o...)}
}

func (m *poolModel) step(op, x, y byte) {
	switch op % 10 {
	default: // most steps
		m.allocate(x, y)
	case 2, 3:
		m.release(x)
	case 6:
		m.retain(x)
	case 7:
		m.pool.Trim(uint64(x) << 12)
	case 8:
		m.misuse(x)
	case 9:
		if h := m.pick(x); h != nil {
			h.buffer.SetExported()
			h.shown = true
		}
	}
	m.check()
}

func (m *poolModel) pick(x byte) *held {
	if len(m.held) == 0 {
		return nil
	}
	return m.held[int(x)%len(m.held)]
}

func (m *poolModel) requested() (n int64) {
	for _, h := range m.held {
		n += int64(h.size)
	}
	return n
}

func (m *poolModel) allocate(x, y byte) {
	// From a few bytes to more than the limit, and sizes that no memory has.
	size := uintptr(x)<<(x%16) + uintptr(y)
	align := uintptr(0)
	switch {
	case y%32 == 31:
		align = uintptr(x) // mostly no power of two
	case y%4 == 1:
		align = 1 << (y / 4 % 14)
	}
	if x == 254 {
		size = math.MaxInt>>(y%3) - uintptr(y)
	}
	tag := string(rune('a' + y%3))
	request := memmgr.Request{Size: size, Align: align, Tag: tag}
	asked := request.Alignment()
	b, err := memmgr.New(m.pool, request)
	// See Request.Check.
	if align&(align-1) != 0 || size > math.MaxInt/2-asked {
		require.ErrorIs(m.t, err, memmgr.ErrRequest, "%d bytes at %d", size, align)
		return
	}
	if err != nil {
		require.ErrorIs(m.t, err, memmgr.ErrOutOfMemory, "%d bytes", size)
		require.False(m.t, len(m.held) == 0 && size <= fuzzFits && align <= fuzzFits/4, "%d bytes at %d are refused by an empty pool", size, align)
		return
	}
	require.LessOrEqual(m.t, m.requested()+int64(size), int64(fuzzLimit), "given beyond the limit")
	m.seed++
	h := &held{buffer: b, at: b.Address(), size: int(size), refs: 1, seed: m.seed}
	require.Zero(m.t, h.at%asked, "alignment %d", asked)
	require.EqualValues(m.t, size, b.Requested())
	require.GreaterOrEqual(m.t, b.Size(), uint64(size))
	require.Equal(m.t, tag, b.Tag())
	for _, o := range m.held {
		require.False(m.t, h.at < o.at+uintptr(o.size) && o.at < h.at+uintptr(h.size), "%d bytes at %#x lie in %d at %#x", h.size, h.at, o.size, o.at)
		require.NotEqual(m.t, h.at, o.at, "an address of its own")
	}
	h.fill()
	m.held = append(m.held, h)
}

// memory returns the bytes at the address of a block, without calling the pool.
func (h *held) memory() []byte {
	return unsafe.Slice((*byte)(h.buffer.Data()), h.size)
}

// value returns the expected value of byte i of a block; it differs between blocks.
func (h *held) value(i int) byte { return h.seed + byte(i>>8)*7 + byte(i) }

// places returns the indices of some bytes at each end and in the middle.
func (h *held) places(f func(i int)) {
	for i := 0; i < h.size; i++ {
		if i == 64 && h.size > 128 {
			for ; i < h.size-64; i += 509 {
				f(i)
			}
			i = h.size - 64
		}
		f(i)
	}
}

func (h *held) fill() {
	b := h.memory()
	h.places(func(i int) { b[i] = h.value(i) })
}

func (m *poolModel) intact(h *held) {
	b, wrong := h.memory(), -1
	h.places(func(i int) {
		if b[i] != h.value(i) {
			wrong = i
		}
	})
	require.Negative(m.t, wrong, "byte %d of %d at %#x was overwritten", wrong, h.size, h.at)
}

func (m *poolModel) release(x byte) {
	h := m.pick(x)
	if h == nil {
		return
	}
	m.intact(h)
	h.buffer.Release()
	if h.refs--; h.refs > 0 {
		require.Equal(m.t, h.refs, h.buffer.Count())
		return
	}
	require.False(m.t, h.buffer.Valid())
	m.drop(h)
}

func (m *poolModel) drop(h *held) {
	m.gone = append(m.gone, h.buffer)
	for i, o := range m.held {
		if o == h {
			m.held = append(m.held[:i], m.held[i+1:]...)
			return
		}
	}
}

func (m *poolModel) retain(x byte) {
	if h := m.pick(x); h != nil && h.refs < 5 {
		require.True(m.t, h.buffer.TryRetain())
		h.refs++
		require.Equal(m.t, h.refs, h.buffer.Count())
	}
}

// misuse uses handles whose memory is free, or allocated again.
func (m *poolModel) misuse(x byte) {
	if len(m.gone) == 0 {
		return
	}
	b := m.gone[int(x)%len(m.gone)]
	require.False(m.t, b.Valid())
	require.False(m.t, b.TryRetain())
	require.Panics(m.t, func() { b.Data() })
	require.Panics(m.t, func() { b.Retain() })
	b.Release() // nothing
}

// check compares the counters and the memory with the model.
func (m *poolModel) check() {
	s := m.pool.Stats()
	require.EqualValues(m.t, len(m.held), s.Allocation.Current)
	require.Equal(m.t, m.requested(), s.RequestedBytes.Current)
	require.GreaterOrEqual(m.t, s.AllocatedBytes.Current, s.RequestedBytes.Current)
	require.LessOrEqual(m.t, s.ReservedBytes.Current, int64(fuzzLimit))
	for _, h := range m.held {
		require.Equal(m.t, h.at, h.buffer.Address())
		if m.steps%8 == 0 {
			m.intact(h)
		}
	}
}

func (m *poolModel) end() {
	m.steps = 0 // all is looked at
	m.check()
	for len(m.held) > 0 {
		m.release(0)
	}
	m.check()
	m.pool.Trim(0)
	require.NoError(m.t, m.pool.Close())
	require.Zero(m.t, m.pool.Stats().ReservedBytes.Current)
}
