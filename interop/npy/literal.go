package npy

import (
	"math"
	"strings"
)

// literal is what the dictionary of a header says.
type literal struct {
	descr   string
	fortran bool
	shape   []int
}

// parser reads the Python literal of a header: a dictionary with the three keys of the
// format, in any order, each once, and no other. Of Python's syntax it knows what such a
// dictionary needs: strings without escapes, True and False, tuples of integers, commas at
// the end. Long integers ("3L") are those of Python 2.
type parser struct {
	s string
	i int
}

// parseLiteral reads the text of a header.
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
			return l, formatError("the header has the key %q twice", key)
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
			err = formatError("the header has the key %q; a .npy file has descr, fortran_order and shape", key)
		}
		if err != nil {
			return l, err
		}
		if !p.take(',') && p.peek() != '}' {
			return l, p.expected("a comma or the end of the dictionary")
		}
	}
	if p.space(); p.i < len(p.s) {
		return l, p.expected("nothing more but blanks")
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return l, formatError("the header lacks the key %q", key)
		}
	}
	return l, nil
}

// expected is the error of a text that goes on otherwise than it should.
func (p *parser) expected(what string) error {
	p.space()
	found := "its end"
	if rest := p.s[p.i:]; rest != "" {
		found = `"` + printable(rest) + `"`
	}
	return formatError("byte %d of the header: %s was expected, and found %s", p.i, what, found)
}

// printable is the beginning of a text that may hold anything.
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

// peek is the next byte that is no blank, 0 at the end.
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
		return "", p.expected("a string of one line, without escapes,")
	}
	p.i += 1 + end + 1
	return rest[:end], nil
}

// descr is a type as a string; a list or tuple describes structured elements.
func (p *parser) descr() (string, error) {
	switch p.peek() {
	case '[':
		return "", typeError("the elements are structured (%s…); read the fields with NumPy and save each as an array of its own", printable(p.s[p.i:]))
	case '(':
		return "", typeError("the elements are arrays (%s…); save them with NumPy as an array with more axes", printable(p.s[p.i:]))
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

// tuple is a tuple of integers that are not negative.
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
		return nil, formatError("the shape is an integer in parentheses; a tuple of one has a comma")
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
			return 0, p.expected("a length that memory can have")
		}
		n = n*10 + digit
	}
	digits := p.s[start:p.i]
	if digits == "" || len(digits) > 1 && digits[0] == '0' && n != 0 {
		p.i = start
		return 0, p.expected("an integer that is not negative")
	}
	if p.i < len(p.s) && p.s[p.i] == 'L' {
		p.i++
	}
	return n, nil
}
