package share

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

func sample(t testing.TB, shape, strides []int, offset int) description {
	l := testenv.Must(usmarray.NewLayout(shape, strides, offset))(t)
	return description{
		segment: segmentFacts{id: segment.ID{1, 2, 3}, size: 1 << 20, audience: segment.PeersRead, kind: syclobj.USMShared},
		offset:  4096, size: 8192, serial: 77, dtype: usmarray.Bfloat16, readOnly: true, padded: true, layout: l,
	}
}

// TestDescriptionRoundTrip checks that an encoded description decodes to the same value, and that
// truncated or extended encodings are rejected.
func TestDescriptionRoundTrip(t *testing.T) {
	most := make([]int, usmarray.MaxDims)
	for i := range most {
		most[i] = 1
	}
	for _, d := range []description{
		sample(t, nil, nil, 0),
		sample(t, []int{3, 4}, []int{-4, 1}, 8),
		sample(t, []int{0, 5}, nil, 3),
		sample(t, most, most, 0),
	} {
		b := appendDescription(nil, &d)
		require.LessOrEqual(t, len(b), maxDescription)
		require.Equal(t, d, testenv.Must(readDescription(b))(t))
		for n := range b {
			require.Error(t, testenv.ErrorOf(readDescription(b[:n])), "%d of %d bytes", n, len(b))
		}
		require.Error(t, testenv.ErrorOf(readDescription(append(b, 0))))
		h := makeHandle("@x", &d, place{7, 8})
		require.LessOrEqual(t, len(h.encoded), MaxHandle)
		require.Equal(t, h, testenv.Must(ParseHandle(h.Bytes()))(t))
		require.NotEqual(t, h.encoded, makeHandle("@x", &d, place{7, 8}).encoded, "each has a secret of its own")
	}
}

// TestInvalidDescriptions checks that descriptions with inconsistent values are rejected.
func TestInvalidDescriptions(t *testing.T) {
	for name, spoil := range map[string]func(*description){
		"no lease":          func(d *description) { d.serial = 0 },
		"offset outside":    func(d *description) { d.offset = d.segment.size + 1 },
		"size outside":      func(d *description) { d.size = d.segment.size },
		"wraps around":      func(d *description) { d.offset, d.size = 1<<20, ^uint64(0) },
		"no segment":        func(d *description) { d.segment.size = 0 },
		"impossible size":   func(d *description) { d.segment.size = 1<<62 + 1 },
		"kind out of range": func(d *description) { d.segment.kind = lastKind + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			d := sample(t, []int{2}, nil, 0)
			spoil(&d)
			require.Error(t, testenv.ErrorOf(readDescription(appendDescription(nil, &d))))
		})
	}
	d := sample(t, []int{2}, nil, 0)
	b := appendDescription(nil, &d)
	for at, bad := range map[int]byte{24: 0xff, 50: 0xff, 55: usmarray.MaxDims + 1, 64 + 7: 0x80} {
		c := bytes.Clone(b)
		c[at] = bad
		require.Error(t, testenv.ErrorOf(readDescription(c)), "byte %d", at)
	}
}

// TestRefusalRoundTrip checks that the kind of a refusal survives encoding and that its text is
// bounded.
func TestRefusalRoundTrip(t *testing.T) {
	for _, kind := range kindNumbers[1:] {
		refusal := testenv.Must(readRefusal(appendRefusal(nil, fmt.Errorf("why: %w", kind))))(t)
		testenv.Failed(t, refusal, kind, "why")
	}
	refusal := testenv.Must(readRefusal(appendRefusal(nil, errors.New(strings.Repeat("x", 1<<20)))))(t)
	require.Less(t, len(refusal.Error()), 2*maxText)
	for _, b := range [][]byte{nil, make([]byte, maxText+2)} {
		require.Error(t, testenv.ErrorOf(readRefusal(b)))
	}
	refusal = testenv.Must(readRefusal([]byte{250, 'x'}))(t)
	require.Error(t, refusal)
}

// FuzzParseHandle checks that ParseHandle rejects invalid input without a panic, and that a parsed
// handle encodes to the same bytes.
func FuzzParseHandle(f *testing.F) {
	d := sample(f, []int{3, 4}, []int{-4, 1}, 8)
	f.Add([]byte(makeHandle("@usmbridge/x", &d, place{7, 8}).encoded))
	f.Add([]byte(makeHandle("/a/path", &d, place{7, 8}).encoded)[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHandle(b)
		if err != nil {
			require.ErrorIs(t, err, ErrHandle)
			return
		}
		require.Equal(t, b, h.Bytes())
		require.Equal(t, b[24:], binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint64(
			appendDescription(appendText(nil, h.maker), &h.d), h.at.board), h.at.slot), "a handle has exactly one encoding")
		_ = h.String()
	})
}

// FuzzDatagram checks that arbitrary datagrams are parsed without a panic, and that a parsed frame
// encodes to the same bytes.
func FuzzDatagram(f *testing.F) {
	d := sample(f, []int{3}, nil, 0)
	b := appendFrame(nil, frameSegment, 0, func(b []byte) []byte { return appendSegment(b, &d.segment) })
	f.Add(appendFrame(b, frameOpened, 9, func(b []byte) []byte { return appendDescription(b, &d) }))
	driven := d.segment
	driven.kind, driven.audience = syclobj.USMDevice, segment.PeersWrite
	f.Add(appendFrame(nil, frameDriver, 0, func(b []byte) []byte { return append(appendSegment(b, &driven), "handle"...) }))
	f.Add(appendFrame(nil, framePass, 3, func(b []byte) []byte { return appendDescription(b, &d) }))
	f.Add(appendFrame(nil, frameBoard, 0, func(b []byte) []byte { return append(b, 1, 0, 0, 0, 0, 0, 0, 0) }))
	f.Add(appendFrame(nil, frameHello, 0, appendHello))
	f.Add(appendFrame(nil, frameRefused, 1, func(b []byte) []byte { return appendRefusal(b, ErrLimit) }))
	f.Add(appendFrame(nil, frameListed, 2, func(b []byte) []byte { return appendText(appendText(b, "a"), "b") }))
	f.Add(appendFrame(nil, frameReleased, 0, func(b []byte) []byte { return append(b, 1, 0, 0, 0, 0, 0, 0, 0) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		for range maxFrames {
			if len(b) == 0 {
				return
			}
			frame, rest, err := nextFrame(b)
			if err != nil {
				return
			}
			require.Equal(t, b[:len(b)-len(rest)], appendFrame(nil, frame.kind, frame.call, func(to []byte) []byte { return append(to, frame.payload...) }))
			take(t, frame)
			b = rest
		}
	})
}

// take decodes the payload of a frame as every kind of payload.
func take(t *testing.T, f frame) {
	_ = readHello(f.payload)
	if s, err := readSegment(f.payload); err == nil {
		require.Equal(t, f.payload, appendSegment(nil, &s))
	}
	if s, handle, err := readDriver(f.payload); err == nil {
		require.Equal(t, f.payload, append(appendSegment(nil, &s), handle...))
		require.NotEmpty(t, handle)
		require.LessOrEqual(t, len(handle), maxDriverHandle)
	}
	if d, err := readDescription(f.payload); err == nil {
		require.Equal(t, f.payload, appendDescription(nil, &d))
		require.LessOrEqual(t, d.offset+d.size, d.segment.size)
	}
	_, _ = ParseHandle(f.payload)
	_, _ = readName(f.payload)
	_, _ = readNames(f.payload)
	_, _ = readRefusal(f.payload)
	_, _ = readID(f.payload)
	if all, err := readSerials(f.payload, nil); err == nil {
		require.LessOrEqual(t, len(all), releaseBatch)
	}
}
