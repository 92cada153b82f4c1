package npy

import (
	"math"
	"strings"

	"github.com/usmbridge/usmbridge/interop/internal/transfer"
)

// literal has the values in the dictionary of a header.
type literal struct {
	descr   string
	fortran bool
	shape   []int
}

// parser parses the Python literal of a header: a dictionary that has the three keys of the format, each
// once, in any order. It accepts strings without escapes, True and False, tuples of integers, trailing
// commas, and the long integers of Python 2 ("3L").
type parser struct {
	s string
	i int
}

// parseLiteral parses the text of a header.
func parseLiteral(text string) (literal, error) {
	p := &parser{s: text}
	var l literal
	seen := map[string]bool{}
	if !p.take('{') {
		return l, p.expected("a dictionary ({)")
	}
	for !p.take('}') {
		key, err := p.text()
		if err != nil {
			return l, err
		}
		if seen[key] {
			return l, formatError("the header has a duplicate key %q", key)
		}
		seen[key] = true
		if !p.take(':') {
			return l, p.expected("a colon")
		}
		switch key {
		case "descr":
			l.descr, err = p.descr()
		case "fortran_order":
			l.fortran, err = p.boolean()
		case "shape":
			l.shape, err = p.tuple()
		default:
			err = formatError("the header has an unknown key %q (want descr, fortran_order and shape)", key)
		}
		if err != nil {
			return l, err
		}
		if !p.take(',') && p.peek() != '}' {
			return l, p.expected("a comma or the end of the dictionary")
		}
	}
	if p.space(); p.i < len(p.s) {
		return l, p.expected("the end of the header")
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return l, formatError("the header has no key %q", key)
		}
	}
	return l, nil
}

// expected returns the error of unexpected text at the current position.
func (p *parser) expected(want string) error {
	p.space()
	found := "its end"
	if rest := p.s[p.i:]; rest != "" {
		found = `"` + printable(rest) + `"`
	}
	return formatError("byte %d of the header: got %s, want %s", p.i, found, want)
}

// printable returns the beginning of s, with a dot for each unprintable character.
func printable(s string) string {
	const most = 24
	if len(s) > most {
		s = s[:most]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, s)
}

func (p *parser) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\n\r\f", p.s[p.i]) >= 0 {
		p.i++
	}
}

// peek skips blanks and returns the next byte, or 0 at the end.
func (p *parser) peek() byte {
	if p.space(); p.i == len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *parser) take(c byte) bool {
	if p.peek() != c || p.i == len(p.s) {
		return false
	}
	p.i++
	return true
}

func (p *parser) text() (string, error) {
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", p.expected("a string")
	}
	rest := p.s[p.i+1:]
	end := strings.IndexByte(rest, quote)
	if end < 0 || strings.ContainsAny(rest[:end], "\\\n\r") {
		return "", p.expected("a string on one line without escapes")
	}
	p.i += 1 + end + 1
	return rest[:end], nil
}

// descr parses a type string. A list or tuple describes structured elements, which are unsupported.
func (p *parser) descr() (string, error) {
	switch p.peek() {
	case '[':
		return "", transfer.TypeError("the elements are structured (%s…); read the fields with NumPy and save each as an array of its own", printable(p.s[p.i:]))
	case '(':
		return "", transfer.TypeError("the elements are arrays (%s…); save them with NumPy as an array with more axes", printable(p.s[p.i:]))
	}
	return p.text()
}

func (p *parser) boolean() (bool, error) {
	p.space()
	for word, v := range map[string]bool{"True": true, "False": false} {
		if rest, ok := strings.CutPrefix(p.s[p.i:], word); ok && (rest == "" || strings.IndexByte(" \t\n\r\f,}", rest[0]) >= 0) {
			p.i += len(word)
			return v, nil
		}
	}
	return false, p.expected("True or False")
}

// tuple parses a tuple of non-negative integers.
func (p *parser) tuple() ([]int, error) {
	if !p.take('(') {
		return nil, p.expected("a tuple")
	}
	shape, comma := []int{}, true
	for !p.take(')') {
		if !comma {
			return nil, p.expected("a comma or the end of the tuple")
		}
		n, err := p.integer()
		if err != nil {
			return nil, err
		}
		if shape = append(shape, n); len(shape) > maxDims {
			return nil, formatError("the shape has more than %d axes", maxDims)
		}
		comma = p.take(',')
	}
	if len(shape) == 1 && !comma {
		return nil, formatError("the shape is an integer in parentheses (want a tuple, with a comma)")
	}
	return shape, nil
}

func (p *parser) integer() (int, error) {
	p.peek()
	start, n := p.i, 0
	for ; p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9'; p.i++ {
		digit := int(p.s[p.i] - '0')
		if n > (math.MaxInt-digit)/10 {
			p.i = start
			return 0, p.expected("an extent that fits an int")
		}
		n = n*10 + digit
	}
	digits := p.s[start:p.i]
	if digits == "" || len(digits) > 1 && digits[0] == '0' && n != 0 {
		p.i = start
		return 0, p.expected("a non-negative integer")
	}
	if p.i < len(p.s) && p.s[p.i] == 'L' {
		p.i++
	}
	return n, nil
}
