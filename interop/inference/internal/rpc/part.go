package rpc

import (
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// part is a message that arrives, or a message within it.
type part struct {
	in  *codec.Incoming
	end int // the offset after its last byte
}

// outermost returns the whole message.
func outermost(in *codec.Incoming) part { return part{in, math.MaxInt} }

func offset(in *codec.Incoming) int { return in.Size() - in.Left() }

// field reads the next tag; ok is false at the end.
func (p part) field() (num protowire.Number, typ protowire.Type, ok bool, err error) {
	at := offset(p.in)
	if at == p.end {
		return 0, 0, false, nil
	}
	if err := p.whole(); err != nil {
		return 0, 0, false, err
	}
	num, typ, err = p.in.Field()
	if errors.Is(err, io.EOF) {
		if p.end == math.MaxInt {
			return 0, 0, false, nil
		}
		err = p.malformed("it ends within a message")
	}
	return num, typ, err == nil, err
}

// whole checks that no field extends beyond the end of the message.
func (p part) whole() error {
	if offset(p.in) > p.end {
		return p.malformed("a field is longer than the message that it is in")
	}
	return nil
}

// length reads the length of a field, and checks it against the end of the message.
func (p part) length(typ protowire.Type) (int, error) {
	n, err := p.in.Length(typ)
	if err == nil && n > p.end-offset(p.in) {
		err = p.malformed("a field is longer than the message that it is in")
	}
	return n, err
}

// within reads the length of a field that is a message.
func (p part) within(typ protowire.Type) (part, error) {
	n, err := p.length(typ)
	return part{p.in, offset(p.in) + n}, err
}

// number reads a varint field.
func (p part) number(typ protowire.Type) (uint64, error) {
	if typ != protowire.VarintType {
		return 0, p.malformed(fmt.Sprintf("wire type %d where a number belongs", typ))
	}
	return p.in.Varint()
}

func (p part) malformed(reason string) error {
	return &codec.WireError{Offset: int64(offset(p.in)), Reason: reason}
}

// text reads strings. Known words are not allocated. Other strings are bounded, each and all
// together.
type text struct {
	known map[string]string
	left  int // bytes that are left for all strings
	buf   [128]byte
}

// read reads a string of at most most bytes. what names it in errors.
func (t *text) read(p part, typ protowire.Type, what string, most int) (string, error) {
	n, err := p.length(typ)
	if err != nil {
		return "", err
	}
	if n > most {
		return "", oip.Errorf(oip.Invalid, "%s has %d bytes; at most %d are taken", what, n, most)
	}
	if t.left -= n; t.left < 0 {
		return "", oip.Errorf(oip.TooLarge, "the names and parameters of the request are longer than is taken in all")
	}
	b := t.buf[:]
	if n > len(b) {
		b = make([]byte, n)
	}
	b = b[:n]
	if err := p.in.ReadFull(b); err != nil {
		return "", err
	}
	if s, ok := t.known[string(b)]; ok {
		return s, nil
	}
	if !utf8.Valid(b) {
		return "", oip.Errorf(oip.Invalid, "%s is not UTF-8", what)
	}
	return string(b), nil
}
