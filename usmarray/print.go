package usmarray

import (
	"fmt"
	"strconv"
)

// printElements formats an array as NumPy's str does. at returns the value at a position of the layout.
func printElements(l *Layout, c *codec, opts PrintOptions, at func(position int) element) string {
	if l.NDim() == 0 {
		return printScalar(c, at(l.offset))
	}
	if l.Size() == 0 {
		return "[]"
	}
	opts = opts.withDefaults()
	p := printer{layout: l, opts: opts, summarize: l.Size() > opts.Threshold}
	positions := p.shown()
	values := make([]element, len(positions))
	for i, pos := range positions {
		values[i] = at(pos)
	}
	p.words = formatElements(c, values, opts.Precision)
	indent := " " + fmt.Sprintf("%*s", len(opts.Prefix), "")
	return p.write(0, indent, opts.LineWidth-len(opts.Suffix))
}

// printScalar formats one value as str of a NumPy scalar.
func printScalar(c *codec, e element) string {
	switch c.class {
	case classBool:
		if e.bits != 0 {
			return "True"
		}
		return "False"
	case classFloat:
		k := c.printKind()
		return k.scalar(e.re, true)
	case classComplex:
		k := c.printKind()
		return k.scalarComplex(e.re, e.im)
	}
	return c.integer(e)
}

func (c *codec) integer(e element) string {
	if c.class == classInt {
		return strconv.FormatInt(int64(e.bits), 10)
	}
	return strconv.FormatUint(e.bits, 10)
}

// printKind returns the printing rules of a floating-point type, or of the parts of a complex one.
func (c *codec) printKind() floatKind {
	switch {
	case c.mini != nil:
		return narrowKind(c.mini)
	case c.dt == Float32, c.dt == Complex64:
		return printFloat32
	}
	return printFloat64
}

// formatElements formats values in a common format, one word each.
func formatElements(c *codec, values []element, prec int) []string {
	words := make([]string, len(values))
	switch c.class {
	case classBool:
		for i, e := range values {
			words[i] = "False"
			if e.bits != 0 {
				words[i] = " True"
			}
		}
	case classFloat:
		k := c.printKind()
		f := newFloatFormat(&k, parts(values, false), prec, false)
		for i, e := range values {
			words[i] = f.format(e.re)
		}
	case classComplex:
		k := c.printKind()
		re := newFloatFormat(&k, parts(values, false), prec, false)
		im := newFloatFormat(&k, parts(values, true), prec, true)
		for i, e := range values {
			words[i] = re.format(e.re) + imaginary(im.format(e.im))
		}
	default:
		width := 0
		for i, e := range values {
			words[i] = c.integer(e)
			width = max(width, len(words[i]))
		}
		for i := range words {
			words[i] = leftPad(words[i], width)
		}
	}
	return words
}

func parts(values []element, imaginary bool) []float64 {
	out := make([]float64, len(values))
	for i, e := range values {
		out[i] = e.re
		if imaginary {
			out[i] = e.im
		}
	}
	return out
}

// imaginary inserts the j before the spaces that pad a number on the right.
func imaginary(s string) string {
	n := len(s)
	for n > 0 && s[n-1] == ' ' {
		n--
	}
	return s[:n] + "j" + s[n:]
}
