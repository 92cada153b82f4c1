package python

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Reasons of a *ConversionError, to be tested with errors.Is.
var (
	// ErrCycle: a container holds itself. The text says where.
	ErrCycle = errors.New("it contains itself")
	// ErrTooDeep: containers in containers, more than 1000 deep: as far as Python's
	// own functions follow them.
	ErrTooDeep = fmt.Errorf("it is nested more than %d deep", maxNesting)
)

const maxNesting = 1000

// identity tells containers apart while they are being converted: a PyObject, or a Go
// map, pointer or part of a slice. An array, which cannot hold itself, has no address.
type identity struct {
	address ptr
	length  int // of a slice
	typ     reflect.Type
}

// level is a container that is being converted, and where in it the conversion is.
type level struct {
	id    identity
	at    any
	where place
}

// place says what level.at is.
type place uint8

const (
	inElement place = iota // an index or the key of a value
	inKey                  // a key, or the number of one
	inTarget               // nothing: what a pointer points to
)

// nesting is the way from the outermost value of a conversion to the one at hand.
type nesting []level

// enter notes a container that is converted from now on, until leave.
func (n *nesting) enter(id identity, from, to string) error {
	for i, l := range *n {
		if l.id == id && id.address != nil {
			return &ConversionError{From: from, To: to,
				Err: fmt.Errorf("%w: %s refers back to %s", ErrCycle, *n, (*n)[:i])}
		}
	}
	if len(*n) == maxNesting {
		return &ConversionError{From: from, To: to, Err: ErrTooDeep}
	}
	*n = append(*n, level{id: id})
	return nil
}

func (n *nesting) leave() { *n = (*n)[:len(*n)-1] }

// at notes the part of the innermost container that is converted next.
func (n nesting) at(where place, part any) {
	l := &n[len(n)-1]
	l.at, l.where = part, where
}

// locate says where in the outermost value an error arose: levels are not left then.
func (n nesting) locate(err error) error {
	if err == nil || len(n) == 0 || errors.Is(err, ErrCycle) {
		return err
	}
	return fmt.Errorf("%s: %w", n, err)
}

// shown is how many levels of a path are written out at either end.
const shown = 8

// String writes the path as Go and Python would: value[2]["a"].
func (n nesting) String() string {
	s := "value"
	for i, l := range n {
		if len(n) > 2*shown && i == shown {
			s += " … "
		}
		if len(n) > 2*shown && i >= shown && i < len(n)-shown {
			continue
		}
		switch {
		case l.where == inTarget:
			s = "*" + s
			continue
		case strings.HasPrefix(s, "*"):
			s = "(" + s + ")"
		}
		if l.where == inKey {
			s += fmt.Sprintf(".key(%v)", l.at)
		} else if text, ok := l.at.(string); ok {
			s += fmt.Sprintf("[%q]", text)
		} else {
			s += fmt.Sprintf("[%v]", l.at)
		}
	}
	return s
}
