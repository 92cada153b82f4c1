package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
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
	has := map[string]bool{}
	err := h.object(func(key string) (err error) {
		has[key] = true
		switch key {
		case dtypeKey:
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
	for _, key := range []string{dtypeKey, shapeKey, offsetsKey} {
		if !has[key] {
			return formatError("tensor %s has no %s", shown(e.name), key)
		}
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

// skip passes over a value of any kind, in which keys must differ too.
func (h *header) skip() error {
	t, err := h.token()
	if err != nil {
		return err
	}
	depth := 0
	var seen []map[string]bool // for each object that is open; nil for a list
	key := false               // a key comes next, or the end of the object
	for {
		switch t {
		case json.Delim('{'):
			seen, key = append(seen, map[string]bool{}), true
			depth++
		case json.Delim('['):
			seen, key = append(seen, nil), false
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
			seen = seen[:depth]
			key = depth > 0 && seen[depth-1] != nil
		default:
			switch s, isText := t.(string); {
			case key && isText && seen[depth-1][s]:
				return formatError("byte %d of the header: the key %s comes twice", h.d.InputOffset(), shown(s))
			case key && isText:
				seen[depth-1][s] = true
				key = false
			default:
				key = depth > 0 && seen[depth-1] != nil
			}
		}
		if depth == 0 {
			return nil
		}
		if depth > maxDepth {
			return formatError("byte %d of the header: values nested more than %d deep", h.d.InputOffset(), maxDepth)
		}
		if t, err = h.token(); err != nil {
			return err
		}
	}
}
