package cute

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
)

// fuzzInput reads a layout and marks from bytes: a rank, per mode an extent and
// a stride of two bytes each, then marks of variable length until they run out.
type fuzzInput struct{ rest []byte }

func (in *fuzzInput) next() int {
	if len(in.rest) == 0 {
		return 0
	}
	b := in.rest[0]
	in.rest = in.rest[1:]
	return int(int8(b))
}

func (in *fuzzInput) next16() int64 { return int64(in.next())<<8 | int64(uint8(in.next())) }

// encode writes the input format of FuzzMarks, for the seed corpus.
func encode(shape, strides []int64, marks ...int8) []byte {
	out := []byte{byte(len(shape))}
	for i := range shape {
		out = binary.BigEndian.AppendUint16(out, uint16(shape[i]))
		out = binary.BigEndian.AppendUint16(out, uint16(strides[i]))
	}
	for _, m := range marks {
		out = append(out, byte(m))
	}
	return out
}

// FuzzMarks: for any layout and marks, nothing panics; a failure has a type and changes nothing; a success
// keeps addresses, extents and divisibility, and printing, the key and the flat form work.
func FuzzMarks(f *testing.F) {
	f.Add(uint8(0), encode(docA.Shape, docA.Strides, 0, 0))
	f.Add(uint8(1), encode(docA.Shape, docA.Strides, 1, 0, 2, 0, 1, 3, 2, 0))
	f.Add(uint8(2), encode(docB.Shape, docB.Strides, 1, 2, 1, 1, 3, 0, 2, 4, 1))
	f.Add(uint8(9), encode(docB.Shape, docB.Strides, 0, 0))
	f.Add(uint8(17), encode(docC.Shape, docC.Strides, 0, 1, -1))
	f.Add(uint8(4), encode([]int64{0, 3}, []int64{3, 1}, 1, 0, 7, 0, 1, 1, 3, 0))
	f.Add(uint8(5), encode([]int64{4, 6}, []int64{-6, 1}, 0, 0))
	f.Add(uint8(12), encode(wideView(12).Shape, make([]int64, 12), 0, 1, 3))
	f.Add(uint8(0), []byte{})
	for _, v := range readVectors(f) {
		f.Add(uint8(8), encode(v.Shape, v.Strides, 0, 0, 1, 0, 2, 0))
	}
	f.Fuzz(func(t *testing.T, choices uint8, data []byte) {
		in := fuzzInput{data}
		v := dlpack.View{DataType: dlpack.Float32, Device: dlpack.CPU}
		for range uint(in.next()) % (MaxRank + 2) {
			v.Shape = append(v.Shape, in.next16())
			v.Strides = append(v.Strides, in.next16())
		}
		s, err := NewSpec(v, Options{
			Strides: StrideWidth(choices & 3), Leading: LeadingRule(choices >> 3 & 1), UnitStrides: choices&4 != 0,
		})
		if err != nil {
			requireTyped(t, err)
			return
		}
		for len(in.rest) > 0 {
			fuzzMark(t, &in, &s)
		}
		requireWords(t, s)
		require.True(t, slices.Equal(v.Shape, s.Shape()))
		require.NotEmpty(t, s.Key().String())
	})
}

func requireTyped(t *testing.T, err error) {
	t.Helper()
	typed := testenv.As[*Error](t, err)
	require.Contains(t, typed.Unwrap(), typed.Kind)
	require.NotEmpty(t, err.Error())
}

// fuzzMark applies one mark and checks its invariants.
func fuzzMark(t *testing.T, in *fuzzInput, s *Spec) {
	before := *s
	index := make([]int64, s.Rank())
	for i, e := range s.Shape() {
		index[i] = max(e-1, 0)
	}
	offset := s.Offset(index...)
	var err error
	if in.next()&1 == 0 {
		lead := Deduce
		if in.next() != 0 {
			lead = in.next()
		}
		err = s.MarkLayoutDynamic(lead)
	} else {
		mode, divisibility := in.next(), int64(in.next())
		var order []int
		if in.next() != 0 {
			order = []int{}
			for range s.Rank() {
				order = append(order, in.next())
			}
		}
		err = s.MarkCompactShapeDynamic(mode, order, divisibility)
	}
	if err != nil {
		requireTyped(t, err)
		require.Equal(t, before, *s)
		return
	}
	if s.Span() > 0 {
		require.Equal(t, offset, s.Offset(index...), "%s became %s", before.Layout(), s.Layout())
		requireDivisible(t, s)
	}
}

// FuzzWords: the reader of the flat form accepts exactly the words that the writer writes.
func FuzzWords(f *testing.F) {
	for _, v := range readVectors(f)[:64] {
		s, err := v.run(LeadingSkipSizeOne, Strides64)
		if err != nil {
			continue
		}
		var data []byte
		for _, w := range s.AppendWords(nil) {
			data = binary.LittleEndian.AppendUint64(data, uint64(w))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var words []int64
		for ; len(data) >= 8; data = data[8:] {
			words = append(words, int64(binary.LittleEndian.Uint64(data)))
		}
		s, err := SpecFromWords(words)
		if err != nil {
			requireTyped(t, err)
			return
		}
		_ = s.Layout()
		_ = s.Key().String()
		c := s
		_ = c.MarkLayoutDynamic(Deduce)
		c = s
		_ = c.MarkCompactShapeDynamic(0, nil, 1)
		require.Equal(t, s, testenv.Must(SpecFromWords(s.AppendWords(nil)))(t))
	})
}
