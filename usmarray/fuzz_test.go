package usmarray

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// model describes an array by the positions of its elements in C order: the simple counterpart of a Layout.
type model struct {
	shape []int
	pos   []int
}

func modelOf(l *Layout) model {
	p := printer{layout: l}
	return model{l.Shape(), p.shown()}
}

func (m model) at(index []int) int {
	k := 0
	for i, x := range index {
		k = k*m.shape[i] + x
	}
	return m.pos[k]
}

// build returns the model of a shape with positions from a function of the index.
func build(shape []int, f func(index []int) int) model {
	m := model{shape: shape}
	n := 1
	for _, d := range shape {
		n *= d
	}
	index := make([]int, len(shape))
	for range n {
		m.pos = append(m.pos, f(index))
		for k := len(shape) - 1; k >= 0; k-- {
			if index[k]++; index[k] < shape[k] {
				break
			}
			index[k] = 0
		}
	}
	return m
}

// pick lists the indices that a slice selects by Python's definition.
func (x Index) pick(d int) []int {
	start, stop := 0, d
	if x.step < 0 {
		start, stop = d-1, -1
	}
	bound := func(v, lo, hi int) int {
		if v < 0 {
			v += d
		}
		return max(lo, min(v, hi))
	}
	if x.hasStart {
		start = bound(x.start, map[bool]int{false: 0, true: -1}[x.step < 0], map[bool]int{false: d, true: d - 1}[x.step < 0])
	}
	if x.hasStop {
		stop = bound(x.stop, map[bool]int{false: 0, true: -1}[x.step < 0], map[bool]int{false: d, true: d - 1}[x.step < 0])
	}
	var out []int
	for i := start; (x.step > 0 && i < stop) || (x.step < 0 && i > stop); i += x.step {
		out = append(out, i)
	}
	return out
}

// index applies slices, one for each axis, and indices.
func (m model) index(items []Index) model {
	var picks [][]int
	var shape []int
	for i, x := range items {
		if x.kind == indexAt {
			picks = append(picks, []int{(x.start + m.shape[i]) % m.shape[i]})
			continue
		}
		p := x.pick(m.shape[i])
		picks = append(picks, p)
		shape = append(shape, len(p))
	}
	return build(shape, func(index []int) int {
		full, k := make([]int, len(items)), 0
		for i, x := range items {
			if x.kind == indexAt {
				full[i] = picks[i][0]
				continue
			}
			full[i] = picks[i][index[k]]
			k++
		}
		return m.at(full)
	})
}

// FuzzLayout applies random operations to a layout and to the model.
func FuzzLayout(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed*7))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		r := rand.New(rand.NewPCG(seed, 1))
		shape := make([]int, r.IntN(4))
		for i := range shape {
			shape[i] = r.IntN(5)
		}
		l := testenv.Must(NewLayout(shape, nil, r.IntN(3)))(t)
		m := modelOf(&l)
		lo, hi := l.bounds()
		for range steps%6 + 1 {
			l, m = step(t, r, l, m)
			got := modelOf(&l)
			require.True(t, slices.Equal(m.shape, got.shape), "%v, want %v", l, m.shape)
			require.True(t, slices.Equal(m.pos, got.pos), "%v", l)
			require.Equal(t, l.isC(), len(m.pos) == 0 || consecutive(m.pos), "%v", l)
			a, b := l.bounds()
			if len(m.pos) > 0 {
				require.Equal(t, []int{slices.Min(m.pos), slices.Max(m.pos) + 1}, []int{a, b})
				require.True(t, lo <= a && b <= hi)
			}
		}
	})
}

func consecutive(v []int) bool {
	for i := range v {
		if v[i] != v[0]+i {
			return false
		}
	}
	return true
}

func step(t *testing.T, r *rand.Rand, l Layout, m model) (Layout, model) {
	switch r.IntN(4) {
	case 0:
		axes := r.Perm(l.NDim())
		if len(axes) == 0 {
			return l, m
		}
		out := testenv.Must(l.transpose(axes...))(t)
		shape := make([]int, len(axes))
		for i, a := range axes {
			shape[i] = m.shape[a]
		}
		return out, build(shape, func(index []int) int {
			full := make([]int, len(axes))
			for i, a := range axes {
				full[a] = index[i]
			}
			return m.at(full)
		})
	case 1:
		return reshapeStep(t, r, l, m)
	case 2:
		out := testenv.Must(l.broadcast(append([]int{1 + r.IntN(2)}, l.shape...)...))(t)
		return out, build(out.Shape(), func(index []int) int { return m.at(index[1:]) })
	}
	items := make([]Index, l.NDim())
	for i, d := range l.shape {
		items[i] = randomItem(r, d)
	}
	out := testenv.Must(l.index(items...))(t)
	return out, m.index(items)
}

func randomItem(r *rand.Rand, d int) Index {
	if d > 0 && r.IntN(4) == 0 {
		return IndexAt(r.IntN(2*d) - d)
	}
	x := All
	if r.IntN(2) == 0 {
		x.hasStart, x.start = true, r.IntN(14)-7
	}
	if r.IntN(2) == 0 {
		x.hasStop, x.stop = true, r.IntN(14)-7
	}
	for x.step = 0; x.step == 0; {
		x.step = r.IntN(9) - 4
	}
	return x
}

// reshapeStep reshapes to a random factorisation. A view must keep the elements'
// order; where there is none, the model proves it.
func reshapeStep(t *testing.T, r *rand.Rand, l Layout, m model) (Layout, model) {
	n := l.Size()
	shape := []int{n}
	if n > 0 {
		f := factor(r, n)
		g := factor(r, n/f)
		shape = []int{f, g, n / f / g}
		shape = append(shape, slices.Repeat([]int{1}, r.IntN(2))...)
		r.Shuffle(len(shape), func(i, j int) { shape[i], shape[j] = shape[j], shape[i] })
	}
	out, err := l.reshape(shape...)
	want := build(shape, func([]int) int { return 0 })
	copy(want.pos, m.pos)
	if err != nil {
		require.ErrorIs(t, err, ErrLayout)
		require.False(t, strided(shape, m.pos), "%v can be reshaped to %v", l, shape)
		return l, m
	}
	return out, want
}

// strided reports whether positions in C order fit any strides at all.
func strided(shape, pos []int) bool {
	strides := make([]int, len(shape))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] > 1 {
			strides[i] = pos[step] - pos[0]
		}
		step *= shape[i]
	}
	fit := build(shape, func(index []int) int {
		p := pos[0]
		for i, x := range index {
			p += x * strides[i]
		}
		return p
	})
	return slices.Equal(fit.pos, pos)
}

// FuzzValidate checks dictionaries of all kinds: the validator accepts exactly those that are valid in
// exact arithmetic.
func FuzzValidate(f *testing.F) {
	f.Add("<f4", uint64(0x1000), int64(0), 1, []byte{2, 0, 3, 0}, []byte{3, 0, 1, 0}, uint64(0), uint64(0))
	f.Add("<f8", uint64(1)<<63, int64(math.MinInt64), 1, []byte{2, 0}, []byte{0xff, 0xff}, uint64(1), uint64(9))
	f.Add("|b1", ^uint64(0), int64(math.MaxInt64), 1, []byte{}, []byte{}, ^uint64(0), ^uint64(0))
	f.Add("<i4", uint64(0x100000), int64(7), 1, []byte{4, 0, 5, 0, 1, 0}, []byte{0xf6, 0xff, 2, 0, 9, 0}, uint64(0), uint64(0))
	f.Add("<f4", uint64(64), int64(-3), 1, []byte{2, 0, 2, 0}, []byte{}, uint64(52), uint64(16))
	f.Add(">i4", uint64(0), int64(1), 2, []byte{0, 0}, []byte{1}, uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, typestr string, data uint64, offset int64, version int, shape, strides []byte, base, size uint64) {
		d := USMInterface{
			TypeStr: typestr, Data: uintptr(data), Offset: int(offset), Version: version,
			Shape: wide(shape), Allocation: Extent{uintptr(base), uintptr(size)},
		}
		if len(strides) > 0 {
			d.Strides = wide(strides)
		}
		requireDictionary(t, &d)
	})
}

// requireDictionary compares the check of a dictionary with exact arithmetic.
func requireDictionary(t *testing.T, d *USMInterface) {
	t.Helper()
	s, err := d.Check()
	if want, sure := sound(d); sure && intBits == 64 {
		require.Equal(t, want, err == nil, "%+v: %v", d, err)
	}
	if err != nil {
		require.ErrorIs(t, err, ErrInterface)
		return
	}
	requireExact(t, d, &s)
}

var typeForm = regexp.MustCompile(`^[<=|](b1|[iu][1248]|f[248]|c8|c16)\z`)

// sound reports whether a dictionary describes possible memory, computed with unbounded numbers. sure is
// false if only an intermediate number overflows.
func sound(d *USMInterface) (sound, sure bool) {
	if d.Version != 1 || len(d.Shape) > MaxDims || !typeForm.MatchString(d.TypeStr) || d.Data == 0 ||
		d.Strides != nil && len(d.Strides) != len(d.Shape) {
		return false, true
	}
	item, _ := strconv.ParseInt(d.TypeStr[2:], 10, 64)
	strides := stridesOf(d)
	e := exact(d.Shape, strides)
	if e.negativeExtent || !fits(e.count) {
		return false, true
	}
	lo, end, offset := big.NewInt(int64(d.Offset)), big.NewInt(int64(d.Offset)), big.NewInt(int64(d.Offset))
	sure = true
	if !e.empty {
		lo.Add(lo, e.lo)
		end.Add(end, e.hi).Add(end, big.NewInt(1))
		if !fits(scaled(e.count, 0, item), lo, end) {
			return false, true
		}
		for i, n := range d.Shape {
			sure = sure && fits(new(big.Int).Mul(big.NewInt(int64(n-1)), big.NewInt(int64(strides[i]))))
		}
	}
	at := func(index *big.Int) (address *big.Int, ok bool) {
		bytes := scaled(index, 0, item)
		address = new(big.Int).Add(new(big.Int).SetUint64(uint64(d.Data)), bytes)
		return address, fits(bytes) && address.Sign() > 0 && address.IsUint64()
	}
	_, ok := at(offset)
	low, okLow := at(lo)
	high, okHigh := at(end)
	if !ok || !okLow || !okHigh || !fits(new(big.Int).Sub(high, low)) {
		return false, sure
	}
	if a := d.Allocation; a.Base != 0 {
		base := new(big.Int).SetUint64(uint64(a.Base))
		last := new(big.Int).Add(base, new(big.Int).SetUint64(uint64(a.Size)))
		return last.IsUint64() && low.Cmp(base) >= 0 && high.Cmp(last) <= 0, sure
	}
	return true, sure
}

// stridesOf returns the strides of a dictionary, or those of C order.
func stridesOf(d *USMInterface) []int {
	if d.Strides != nil {
		return d.Strides
	}
	strides := make([]int, len(d.Shape))
	step := 1
	for i := len(d.Shape) - 1; i >= 0; i-- {
		strides[i] = step
		step *= max(d.Shape[i], 1) // if it wraps, the number of elements is too large
	}
	return strides
}

// wide reads two-byte numbers and scales every fourth to the limits of an int.
func wide(b []byte) []int {
	out := make([]int, 0, len(b)/2)
	for ; len(b) >= 2; b = b[2:] {
		v := int(int16(binary.LittleEndian.Uint16(b)))
		if v&3 == 3 {
			v <<= 48
		}
		out = append(out, v)
	}
	return out
}

// requireExact compares the span with one computed with unbounded numbers.
func requireExact(t *testing.T, d *USMInterface, s *USMSpan) {
	t.Helper()
	e := exact(d.Shape, stridesOf(d))
	require.Equal(t, e.c, s.IsC)
	if e.empty {
		require.Zero(t, s.Elements)
		require.Equal(t, s.Lo, s.Hi)
		require.Equal(t, s.Lo, s.First)
		return
	}
	at := func(index *big.Int, plus int64) string {
		bytes := scaled(index.Add(index, big.NewInt(int64(d.Offset))), plus, int64(s.DataType.Size()))
		return bytes.Add(bytes, new(big.Int).SetUint64(uint64(d.Data))).String()
	}
	number := func(x uintptr) string { return strconv.FormatUint(uint64(x), 10) }
	require.Equal(t, e.count.String(), strconv.Itoa(s.Elements))
	require.Equal(t, at(new(big.Int), 0), number(s.First))
	require.Equal(t, at(e.lo, 0), number(s.Lo))
	require.Equal(t, at(e.hi, 1), number(s.Hi))
	require.LessOrEqual(t, s.Lo, s.First)
	require.Less(t, s.First, s.Hi)
	if d.Allocation.Base != 0 {
		require.GreaterOrEqual(t, s.Lo, d.Allocation.Base)
		require.LessOrEqual(t, s.Hi-d.Allocation.Base, d.Allocation.Size)
	}
}
