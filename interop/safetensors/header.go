package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The keys of the format.
const (
	metadataKey = "__metadata__"
	dtypeKey    = "dtype"
	shapeKey    = "shape"
	offsetsKey  = "data_offsets"
)

// entry describes a tensor as the header does. It is not validated.
type entry struct {
	name       string
	dtype      string
	shape      []int
	begin, end int64
}

// header parses the JSON of a header. It reads tokens, because package json would accept duplicate keys and
// lose digits of numbers.
type header struct {
	d       *json.Decoder
	entries []entry
	meta    map[string]string
}

// parseHeader parses the text of a header.
func parseHeader(text []byte) (*header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, formatError("invalid beginning of the header (got %q, want {)", text[:min(len(text), 1)])
	}
	if !utf8.Valid(text) {
		return nil, formatError("the header is not UTF-8")
	}
	if err := surrogates(text); err != nil {
		return nil, err
	}
	h := &header{d: json.NewDecoder(bytes.NewReader(text))}
	h.d.UseNumber()
	if err := h.object(h.member); err != nil {
		return nil, err
	}
	if _, err := h.d.Token(); !errors.Is(err, io.EOF) {
		return nil, formatError("byte %d of the header: data after its end", h.d.InputOffset())
	}
	return h, nil
}

// token returns the next token. The end of the text is an error.
func (h *header) token() (json.Token, error) {
	t, err := h.d.Token()
	if err != nil {
		return nil, formatError("byte %d of the header: %w", h.d.InputOffset(), err)
	}
	return t, nil
}

func (h *header) expected(want string, found json.Token) error {
	return formatError("byte %d of the header: got %s, want %s", h.d.InputOffset(), shown(found), want)
}

// shown returns a token for an error text, quoted and shortened.
func shown(t json.Token) string {
	const most = 40
	s := fmt.Sprintf("%v", t)
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// object reads an object and calls member for each key, to read its value. A repeated key is an error.
func (h *header) object(member func(key string) error) error {
	t, err := h.token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return h.expected("an object", t)
	}
	seen := map[string]bool{}
	for {
		t, err := h.token()
		if err != nil {
			return err
		}
		if t == json.Delim('}') {
			return nil
		}
		key, ok := t.(string)
		if !ok {
			return h.expected("a key", t)
		}
		if seen[key] {
			return formatError("byte %d of the header: duplicate key %s", h.d.InputOffset(), shown(key))
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
}

// member reads a tensor or the metadata.
func (h *header) member(key string) error {
	if key == metadataKey {
		h.meta = map[string]string{}
		return h.object(func(key string) (err error) {
			h.meta[key], err = h.text()
			return err
		})
	}
	e := entry{name: key, begin: -1}
	var hasType bool
	err := h.object(func(key string) (err error) {
		switch key {
		case dtypeKey:
			hasType = true
			e.dtype, err = h.text()
		case shapeKey:
			e.shape, err = h.sizes()
		case offsetsKey:
			var both []int
			if both, err = h.sizes(); err != nil {
				return err
			}
			if len(both) != 2 {
				return formatError("byte %d of the header: %s has %d items (want 2: the beginning and the end)", h.d.InputOffset(), offsetsKey, len(both))
			}
			e.begin, e.end = int64(both[0]), int64(both[1])
		default:
			err = h.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	missing := ""
	switch {
	case !hasType:
		missing = dtypeKey
	case e.shape == nil:
		missing = shapeKey
	case e.begin < 0:
		missing = offsetsKey
	}
	if missing != "" {
		return formatError("tensor %s has no %s", shown(e.name), missing)
	}
	h.entries = append(h.entries, e)
	return nil
}

func (h *header) text() (string, error) {
	t, err := h.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", h.expected("a string", t)
	}
	return s, nil
}

// sizes reads a list of non-negative integers.
func (h *header) sizes() ([]int, error) {
	t, err := h.token()
	if err != nil {
		return nil, err
	}
	if t != json.Delim('[') {
		return nil, h.expected("a list", t)
	}
	list := []int{}
	for {
		t, err := h.token()
		if err != nil {
			return nil, err
		}
		if t == json.Delim(']') {
			return list, nil
		}
		number, ok := t.(json.Number)
		if !ok {
			return nil, h.expected("an integer", t)
		}
		n, err := strconv.ParseUint(number.String(), 10, 64)
		if err != nil || n > math.MaxInt {
			return nil, h.expected("a non-negative integer that fits an int", t)
		}
		if list = append(list, int(n)); len(list) > maxDims {
			return nil, formatError("byte %d of the header: more than %d axes", h.d.InputOffset(), maxDims)
		}
	}
}

// skip ignores the next value.
func (h *header) skip() error {
	if err := h.d.Decode(&skipped{}); err != nil {
		return formatError("byte %d of the header: %w", h.d.InputOffset(), err)
	}
	return nil
}

// skipped is an ignored value. It is scanned as text, because its tokens would take many times the memory of a
// large header. The decoder has checked the syntax.
type skipped struct{}

// UnmarshalJSON checks the depth of nesting.
func (*skipped) UnmarshalJSON(text []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("values nested more than %d deep", maxDepth)
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return nil
}

// surrogates refuses an escape for half of a surrogate pair (\ud800 to \udfff) without the other half. The
// decoder would replace it by U+FFFD, so that different names could become equal.
func surrogates(text []byte) error {
	for i := 0; ; {
		n := bytes.IndexByte(text[i:], '\\')
		if n < 0 {
			return nil
		}
		i += n
		first, ok := escape(text[i:])
		switch {
		case !ok: // an escape of one letter, or one that the decoder refuses
			i += min(2, len(text)-i)
			continue
		case !utf16.IsSurrogate(first):
			i += escapeBytes
			continue
		}
		if second, _ := escape(text[i+escapeBytes:]); utf16.DecodeRune(first, second) == utf8.RuneError {
			return formatError("byte %d of the header: %s is half of a surrogate pair", i, text[i:i+escapeBytes])
		}
		i += 2 * escapeBytes
	}
}

// escapeBytes is the length of \u and four digits.
const escapeBytes = 6

// escape returns the value of the \u escape at the beginning of text.
func escape(text []byte) (r rune, ok bool) {
	if len(text) < escapeBytes || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:escapeBytes]), 16, 16)
	return rune(n), err == nil
}
