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

// entry is one tensor as a header describes it: unchecked.
type entry struct {
	name       string
	dtype      string
	shape      []int
	begin, end int64
}

// header reads the JSON of a header, token by token, because the values of a key that comes
// twice, and the numbers that are none of a size, must not get lost.
type header struct {
	d       *json.Decoder
	entries []entry
	meta    map[string]string
}

// parseHeader reads the text of a header.
func parseHeader(text []byte) (*header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, formatError("the header begins with %q, not with {", text[:min(len(text), 1)])
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
		return nil, formatError("byte %d of the header: more than blanks after its end", h.d.InputOffset())
	}
	return h, nil
}

// token is the next token; the end of the text is an error like any other.
func (h *header) token() (json.Token, error) {
	t, err := h.d.Token()
	if err != nil {
		return nil, formatError("byte %d of the header: %w", h.d.InputOffset(), err)
	}
	return t, nil
}

func (h *header) expected(what string, found json.Token) error {
	return formatError("byte %d of the header: %s was expected, and found %s", h.d.InputOffset(), what, shown(found))
}

// shown is a token for an error's text.
func shown(t json.Token) string {
	const most = 40
	s := fmt.Sprintf("%v", t)
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strconv.Quote(s)
}

// object reads an object whose keys differ; member reads the value of each.
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
			return formatError("byte %d of the header: the key %s comes twice", h.d.InputOffset(), shown(key))
		}
		seen[key] = true
		if err := member(key); err != nil {
			return err
		}
	}
}

// member is one of the header itself: a tensor, or the metadata.
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
				return formatError("byte %d of the header: %s has %d items; a tensor has a beginning and an end", h.d.InputOffset(), offsetsKey, len(both))
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

// sizes is a list of integers that are not negative, written as such.
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
			return nil, h.expected("an integer that is not negative and that memory can have", t)
		}
		if list = append(list, int(n)); len(list) > maxDims {
			return nil, formatError("byte %d of the header: more than %d axes", h.d.InputOffset(), maxDims)
		}
	}
}

// skip passes over a value of any kind, without looking at what it holds.
func (h *header) skip() error {
	if err := h.d.Decode(&skipped{}); err != nil {
		return formatError("byte %d of the header: %w", h.d.InputOffset(), err)
	}
	return nil
}

// skipped is a value that is passed over. The decoder has checked its text, which is looked
// at where it lies: a header may be one such value, and tokens would take many times its size.
type skipped struct{}

// UnmarshalJSON looks at how deep the value is nested.
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

// surrogates refuses escapes that are half a character (\ud800 to \udfff) without the other
// half, of which the decoder makes U+FFFD: different names would become one.
func surrogates(text []byte) error {
	for i := 0; ; {
		n := bytes.IndexByte(text[i:], '\\')
		if n < 0 {
			return nil
		}
		i += n
		first, ok := escape(text[i:])
		switch {
		case !ok: // of one letter, or the decoder refuses it
			i += min(2, len(text)-i)
			continue
		case !utf16.IsSurrogate(first):
			i += escapeBytes
			continue
		}
		if second, _ := escape(text[i+escapeBytes:]); utf16.DecodeRune(first, second) == utf8.RuneError {
			return formatError("byte %d of the header: %s is half a character", i, text[i:i+escapeBytes])
		}
		i += 2 * escapeBytes
	}
}

// escapeBytes is the length of \u and four digits.
const escapeBytes = 6

// escape is the value of the escape that text begins with.
func escape(text []byte) (r rune, ok bool) {
	if len(text) < escapeBytes || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:escapeBytes]), 16, 16)
	return rune(n), err == nil
}
