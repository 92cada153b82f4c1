package values

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"
)

// MaxNesting is the maximum depth of nested containers. Python's own functions have the same limit.
const MaxNesting = 1000

// Reasons why a value cannot be converted.
var (
	ErrCycle   = errors.New("it contains itself")
	ErrTooDeep = fmt.Errorf("it is nested more than %d deep", MaxNesting)
)

// Path leads from the outermost value of a conversion to the current one. It detects containers
// that contain themselves, and locates errors.
type Path []level

// level is a container that is being converted, and the place of the current value in it.
type level struct {
	address unsafe.Pointer // nil for a container that cannot contain itself
	length  int            // of a slice
	typ     reflect.Type

	place place
	index int    // inIndex
	name  string // inName
	key   any    // inKey, inEntry
}

type place uint8

const (
	inIndex  place = iota // the element with an index
	inName                // the value of an entry whose key is a text
	inEntry               // the value of an entry with another key
	inKey                 // the key of an entry
	inTarget              // the target of a pointer
)

// Enter adds a container, until Leave. Its identity is the address, the length of a slice and
// the type. The error wraps ErrCycle if the container is in the path already, or ErrTooDeep.
func (p *Path) Enter(address unsafe.Pointer, length int, typ reflect.Type) error {
	if address != nil {
		for i := range *p {
			if l := &(*p)[i]; l.address == address && l.length == length && l.typ == typ {
				return fmt.Errorf("%w: %s refers back to %s", ErrCycle, *p, (*p)[:i])
			}
		}
	}
	if len(*p) == MaxNesting {
		return ErrTooDeep
	}
	*p = append(*p, level{address: address, length: length, typ: typ})
	return nil
}

// Leave removes the innermost container.
func (p *Path) Leave() { *p = (*p)[:len(*p)-1] }

func (p Path) last() *level { return &p[len(p)-1] }

// AtIndex notes that the element with this index of the innermost container is the current value.
func (p Path) AtIndex(i int) {
	l := p.last()
	l.place, l.index = inIndex, i
}

// AtName notes the value of the entry with this text as key.
func (p Path) AtName(name string) {
	l := p.last()
	l.place, l.name = inName, name
}

// AtEntry notes the value of the entry with this key.
func (p Path) AtEntry(key any) {
	if name, ok := key.(string); ok {
		p.AtName(name)
		return
	}
	l := p.last()
	l.place, l.key = inEntry, key
}

// AtKey notes the key of an entry. key is the key itself, or the number of the entry.
func (p Path) AtKey(key any) {
	l := p.last()
	l.place, l.key = inKey, key
}

// AtTarget notes the target of a pointer.
func (p Path) AtTarget() { p.last().place = inTarget }

// Locate adds the path to an error, unless the error has it already or the path is empty.
func (p Path) Locate(err error) error {
	if err == nil || len(p) == 0 || errors.Is(err, ErrCycle) {
		return err
	}
	return fmt.Errorf("%s: %w", p, err)
}

// shown is the number of levels that String writes at each end of a long path.
const shown = 8

// String writes the path as Go and Python would: value[2]["a"].
func (p Path) String() string {
	s := "value"
	for i, l := range p {
		if len(p) > 2*shown && i == shown {
			s += " … "
		}
		if len(p) > 2*shown && i >= shown && i < len(p)-shown {
			continue
		}
		if l.place == inTarget {
			s = "*" + s
			continue
		}
		if strings.HasPrefix(s, "*") {
			s = "(" + s + ")"
		}
		switch l.place {
		case inKey:
			s += fmt.Sprintf(".key(%v)", l.key)
		case inName:
			s += fmt.Sprintf("[%q]", l.name)
		case inEntry:
			s += fmt.Sprintf("[%v]", l.key)
		default:
			s += fmt.Sprintf("[%d]", l.index)
		}
	}
	return s
}
