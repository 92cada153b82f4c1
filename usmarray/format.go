package usmarray

import "strings"

// PrintOptions are the options of Format, a value that owns nothing. The zero value of a field means
// NumPy's default, which its comment gives.
type PrintOptions struct {
	Precision int    // maximum number of digits after the point: 8; negative for 0
	Threshold int    // larger arrays are summarized: 1000 elements
	EdgeItems int    // elements shown at each end of an axis of a summarized array: 3
	LineWidth int    // characters per line: 75
	Separator string // between elements: " "
	Prefix    string // its width is the indentation of all lines but the first: ""
	Suffix    string // its width is reserved at the end of the lines: ""
}

func (o PrintOptions) withDefaults() PrintOptions {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Precision, 8)
	o.Precision = max(o.Precision, 0)
	set(&o.Threshold, 1000)
	set(&o.EdgeItems, 3)
	set(&o.LineWidth, 75)
	if o.Separator == "" {
		o.Separator = " "
	}
	return o
}

// printer writes nested brackets with the line breaks of NumPy.
type printer struct {
	layout    *Layout
	opts      PrintOptions
	summarize bool
	words     []string // the elements that are not printed yet, in the order of shown
}

// shown returns the positions of the elements that will be printed, in order.
func (p *printer) shown() []int {
	var out []int
	var walk func(axis, pos int)
	walk = func(axis, pos int) {
		if axis == p.layout.NDim() {
			out = append(out, pos)
			return
		}
		d, s := p.layout.shape[axis], p.layout.strides[axis]
		for i := 0; i < d; i++ {
			if p.cut(d) && i == p.opts.EdgeItems {
				i = d - p.opts.EdgeItems
			}
			walk(axis+1, pos+i*s)
		}
	}
	walk(0, p.layout.offset)
	return out
}

// cut reports whether the middle of an axis of length d is omitted.
func (p *printer) cut(d int) bool { return p.summarize && d > 2*p.opts.EdgeItems }

// write prints axis and all axes after it. indent is the prefix of continued lines, width the remaining
// width.
func (p *printer) write(axis int, indent string, width int) string {
	var body string
	if axis == p.layout.NDim()-1 {
		body = p.writeRow(p.layout.shape[axis], indent, width)
	} else {
		body = p.writeBlocks(axis, indent, width)
	}
	return "[" + body[len(indent):] + "]"
}

// writeBlocks prints an axis whose elements are themselves arrays.
func (p *printer) writeBlocks(axis int, indent string, width int) string {
	var b strings.Builder
	d := p.layout.shape[axis]
	sep := strings.TrimRight(p.opts.Separator, " ") + strings.Repeat("\n", p.layout.NDim()-axis-1)
	for i := 0; i < d; i++ {
		if p.cut(d) && i == p.opts.EdgeItems {
			b.WriteString(indent + "..." + sep)
			i = d - p.opts.EdgeItems
		}
		b.WriteString(indent + p.write(axis+1, indent+" ", width-1))
		if i < d-1 {
			b.WriteString(sep)
		}
	}
	return b.String()
}

// writeRow prints d elements of the last axis and breaks lines that would become too long.
func (p *printer) writeRow(d int, indent string, width int) string {
	room := width - max(len(strings.TrimRight(p.opts.Separator, " ")), 1)
	var done strings.Builder
	line := []byte(indent)
	add := func(word string) {
		// Do not break before a word that is too long for any line.
		if len(line)+len(word) > room && len(line) > len(indent) {
			done.WriteString(strings.TrimRight(string(line), " ") + "\n")
			line = append(line[:0], indent...)
		}
		line = append(line, word...)
	}
	for i := 0; i < d; i++ {
		if p.cut(d) && i == p.opts.EdgeItems {
			add("...")
			line = append(line, p.opts.Separator...)
			i = d - p.opts.EdgeItems
		}
		add(p.words[0])
		p.words = p.words[1:]
		if i < d-1 {
			line = append(line, p.opts.Separator...)
		}
	}
	done.Write(line)
	return done.String()
}
