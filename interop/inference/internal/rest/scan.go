package rest

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// maxDepth is how deep JSON may be nested.
const maxDepth = 64

// scanner reads JSON (RFC 8259) from memory, in the order of the bytes, and makes nothing of
// it that nobody asks for: encoding/json takes several times as long for a header of 200 bytes,
// and would make a slice of interfaces of a tensor.
type scanner struct {
	b []byte
	i int // the next byte
}

// wrong is the error at the next byte.
func (s *scanner) wrong(what string) error {
	if s.i >= len(s.b) {
		what = "it ends"
	}
	return oip.Errorf(oip.Invalid, "the JSON of the request is wrong at byte %d: %s", s.i, what)
}

// peek returns the next byte that is no white space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take passes over a byte, and reports whether it was the next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// expect passes over a byte that must be next.
func (s *scanner) expect(c byte) error {
	if !s.take(c) {
		return s.wrong("expected " + string(rune(c)))
	}
	return nil
}

// end wants nothing more.
func (s *scanner) end() error {
	if s.peek() != 0 || s.i < len(s.b) {
		return s.wrong("something follows the value")
	}
	return nil
}

// more steps through the members of an object or an array behind its opening byte: it reports
// whether another one follows, and passes over what separates or ends them.
func (s *scanner) more(n int, closing byte) (bool, error) {
	if s.take(closing) {
		return false, nil
	}
	if n > 0 {
		if err := s.expect(','); err != nil {
			return false, err
		}
		if s.peek() == closing {
			return false, s.wrong("a comma before the end")
		}
	}
	return true, nil
}

// raw reads a string and returns what lies between its quotes, as it is written.
func (s *scanner) raw() ([]byte, error) {
	if s.peek() != '"' {
		return nil, s.wrong("expected a string")
	}
	s.i++
	from, plain := s.i, true
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			text := s.b[from:s.i]
			if !plain && !utf8.Valid(text) {
				return nil, s.wrong("a string that is not UTF-8")
			}
			s.i++
			return text, nil
		case c < ' ':
			return nil, s.wrong("a control character in a string")
		case c == '\\':
			if !s.escape() {
				return nil, s.wrong("an escape that is none")
			}
			continue
		case c >= utf8.RuneSelf:
			plain = false
		}
		s.i++
	}
	return nil, s.wrong("a string without an end")
}

// escape passes over one, and reports whether it was one.
func (s *scanner) escape() bool {
	rest := s.b[s.i:]
	if len(rest) < 2 {
		return false
	}
	switch rest[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return true
	case 'u':
		if len(rest) < 6 {
			return false
		}
		for _, c := range rest[2:6] {
			if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
				return false
			}
		}
		s.i += 6
		return true
	}
	return false
}

// plain is the text of a string that raw returned. It may be part of the JSON's memory.
func (s *scanner) plain(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw, nil
	}
	var text string
	if err := json.Unmarshal(append(append([]byte{'"'}, raw...), '"'), &text); err != nil {
		return nil, s.wrong("a string that is none")
	}
	return []byte(text), nil
}

// text reads a string.
func (s *scanner) text() (string, error) {
	raw, err := s.raw()
	if err != nil {
		return "", err
	}
	if len(raw) > maxText {
		return "", s.wrong("a string that is too long before")
	}
	t, err := s.plain(raw)
	return string(t), err
}

// key reads the name of a member and the colon behind it. It may be part of the JSON's memory.
func (s *scanner) key() ([]byte, error) {
	raw, err := s.raw()
	if err != nil {
		return nil, err
	}
	k := raw
	if len(raw) <= maxText { // a longer one is nobody's, and its escapes are not looked into
		if k, err = s.plain(raw); err != nil {
			return nil, err
		}
	}
	return k, s.expect(':')
}

// literal passes over a word, and reports whether it was next.
func (s *scanner) literal(word string) bool {
	if s.peek() == 0 || !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		return false
	}
	s.i += len(word)
	return true
}

// boolean reads true or false.
func (s *scanner) boolean() (bool, error) {
	switch {
	case s.literal("true"):
		return true, nil
	case s.literal("false"):
		return false, nil
	}
	return false, s.wrong("expected true or false")
}

func (s *scanner) digits() (n int) {
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i, n = s.i+1, n+1
	}
	return n
}

// number reads a number and returns it as it is written, and whether it is one without a
// fraction and an exponent.
func (s *scanner) number() (token []byte, whole bool, err error) {
	s.peek()
	from := s.i
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	first := s.i
	if n := s.digits(); n == 0 || n > 1 && s.b[first] == '0' {
		s.i = from
		return nil, false, s.wrong("expected a number")
	}
	whole = true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		whole = false
		if s.digits() == 0 {
			return nil, false, s.wrong("a fraction without digits")
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		whole = false
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			return nil, false, s.wrong("an exponent without digits")
		}
	}
	return s.b[from:s.i], whole, nil
}

// integer reads a number that is a signed 64-bit one.
func (s *scanner) integer() (int64, error) {
	from := s.i
	token, whole, err := s.number()
	if err != nil {
		return 0, err
	}
	magnitude, negative, ok := integerOf(token)
	if !whole || !ok || magnitude > 1<<63 || magnitude == 1<<63 && !negative {
		s.i = from
		return 0, s.wrong("expected a whole number of 64 bits")
	}
	if negative {
		return -int64(magnitude), nil
	}
	return int64(magnitude), nil
}

// integerOf is the value of an integer's digits; false where it has more than 64 bits.
func integerOf(token []byte) (magnitude uint64, negative, ok bool) {
	if token[0] == '-' {
		negative, token = true, token[1:]
	}
	if len(token) > 20 { // there are no leading zeros
		return 0, negative, false
	}
	for _, c := range token {
		d := uint64(c - '0')
		if magnitude > (1<<64-1)/10 || magnitude*10 > 1<<64-1-d {
			return 0, negative, false
		}
		magnitude = magnitude*10 + d
	}
	return magnitude, negative, true
}

// skip passes over a value of any type, which lies depth deep.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.wrong("nested too deep")
	}
	switch c := s.peek(); c {
	case '"':
		_, err := s.raw()
		return err
	case '{', '[':
		s.i++
		for n := 0; ; n++ {
			more, err := s.more(n, c+2) // the closing ones come two later
			if err != nil || !more {
				return err
			}
			if c == '{' {
				if _, err := s.raw(); err != nil {
					return err
				}
				if err := s.expect(':'); err != nil {
					return err
				}
			}
			if err := s.skip(depth + 1); err != nil {
				return err
			}
		}
	default:
		if s.special() || s.literal("true") || s.literal("false") || s.literal("null") {
			return nil
		}
		_, _, err := s.number()
		return err
	}
}

// special passes over a number that JSON has no digits for, as Python's encoders and those of
// the protocol's clients write it.
func (s *scanner) special() bool {
	return s.literal("NaN") || s.literal("Infinity") || s.literal("-Infinity")
}
