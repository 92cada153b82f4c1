package rest

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// maxDepth is the maximum depth of nested values that are skipped.
const maxDepth = 64

// jsonOptions allow duplicate names, because the decoder would keep all names of an object in memory
// to find them. Duplicates of known members are found by object.
var jsonOptions = jsontext.AllowDuplicateNames(true)

// reader reads the JSON of a request.
type reader struct {
	text []byte
	dec  jsontext.Decoder
	// special says that the text has numbers which JSON lacks, in the form of quoteSpecials.
	special bool
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// newReader returns a reader of text, which it may change. The caller ends its use with release.
func newReader(text []byte) *reader {
	r, _ := readers.Get().(*reader)
	r.text, r.special = text, quoteSpecials(text)
	r.dec.Reset(bytes.NewBuffer(text), jsonOptions)
	return r
}

func (r *reader) release() {
	r.text = nil
	r.dec.Reset(noText)
	readers.Put(r)
}

var noText = new(bytes.Buffer)

// The forms of NaN, Infinity and -Infinity that jsontext accepts: strings of the same length.
const (
	quotedNaN         = `"N"`
	quotedInfinity    = `"Infini"`
	quotedNegInfinity = `"-Infini"`
)

// quoteSpecials replaces NaN, Infinity and -Infinity by strings of the same length, and reports
// whether there was one. Python's json module and the clients of Triton write and accept these
// literals, which jsontext refuses.
func quoteSpecials(text []byte) (found bool) {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return false
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"': // to the end of the string
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case 'N', 'I', '-':
			for literal, quoted := range map[string]string{"NaN": quotedNaN, "Infinity": quotedInfinity, "-Infinity": quotedNegInfinity} {
				if bytes.HasPrefix(text[i:], []byte(literal)) {
					copy(text[i:], quoted)
					i += len(literal) - 1
					found = true
					break
				}
			}
		}
	}
	return found
}

// invalid returns an error at a byte of the text.
func (r *reader) invalid(at int64, problem string) error {
	if at >= int64(len(r.text)) {
		problem = "unexpected end"
	}
	return oip.Errorf(oip.Invalid, "invalid JSON in the request at byte %d: %s", at, problem)
}

// want returns an error for the next value, which has the wrong type.
func (r *reader) want(what string) error {
	if kind := r.dec.PeekKind(); kind == jsontext.KindInvalid {
		if _, err := r.dec.ReadToken(); err != nil {
			return r.failed(err)
		}
	}
	return r.invalid(r.next(), "want "+what)
}

// next returns the position of the next value.
func (r *reader) next() int64 {
	at := r.dec.InputOffset()
	for at < int64(len(r.text)) && bytes.IndexByte([]byte(" \t\r\n,:"), r.text[at]) >= 0 {
		at++
	}
	return at
}

// failed returns the error for one of the decoder.
func (r *reader) failed(err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return r.invalid(syntax.ByteOffset, syntax.Err.Error())
	}
	if errors.Is(err, io.EOF) {
		return r.invalid(int64(len(r.text)), "")
	}
	return oip.Errorf(oip.Invalid, "invalid JSON in the request: %s", err)
}

// end checks that nothing follows the value.
func (r *reader) end() error {
	at := r.next()
	switch _, err := r.dec.ReadToken(); {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return r.invalid(at, "unexpected data after the value")
	default:
		return r.failed(err)
	}
}

// null reads a null and reports whether it was the next value.
func (r *reader) null() bool {
	if r.dec.PeekKind() != jsontext.KindNull {
		return false
	}
	_, err := r.dec.ReadToken()
	return err == nil
}

// open reads the start of an object or array.
func (r *reader) open(kind jsontext.Kind, what string) error {
	if r.dec.PeekKind() != kind {
		return r.want(what)
	}
	_, err := r.dec.ReadToken()
	return err
}

// more reports whether another member or element follows, at most most in total. At the end it reads
// the end of the object or array.
func (r *reader) more(n, most int, end jsontext.Kind) (bool, error) {
	switch r.dec.PeekKind() {
	case end, jsontext.KindInvalid:
		if _, err := r.dec.ReadToken(); err != nil {
			return false, r.failed(err)
		}
		return false, nil
	}
	if n == most {
		return false, r.invalid(r.next(), "too many elements: at most "+strconv.Itoa(most)+" are accepted")
	}
	return true, nil
}

// object reads an object and returns the known members that it has. For each member it calls read,
// which reads the value; f is 0 for an unknown member. The name is valid until then. A null means that
// a known member is absent.
func (r *reader) object(known map[string]field, read func(f field, name []byte) error) (has field, err error) {
	if err := r.open(jsontext.KindBeginObject, "an object"); err != nil {
		return 0, err
	}
	var seen field
	for n := 0; ; n++ {
		more, err := r.more(n, maxMembers, jsontext.KindEndObject)
		if err != nil || !more {
			return has, err
		}
		at := r.next()
		quoted, err := r.dec.ReadValue()
		if err != nil {
			return has, r.failed(err)
		}
		name := r.unquote(quoted)
		f := known[string(name)]
		if seen&f != 0 {
			return has, r.invalid(at, "duplicate member "+oip.Quote(string(name)))
		}
		seen |= f
		if f != 0 && r.null() {
			continue
		}
		has |= f
		if err := read(f, name); err != nil {
			return has, err
		}
	}
}

// list reads an array. It calls each before an element, and each reads the element.
func (r *reader) list(most int, each func() error) error {
	if err := r.open(jsontext.KindBeginArray, "an array"); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := r.more(n, most, jsontext.KindEndArray)
		if err != nil || !more {
			return err
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// skip reads a value of any type, at most maxDepth deep.
func (r *reader) skip() error {
	for depth := r.dec.StackDepth(); ; {
		if _, err := r.dec.ReadToken(); err != nil {
			return r.failed(err)
		}
		switch d := r.dec.StackDepth(); {
		case d <= depth:
			return nil
		case d > maxDepth:
			return r.invalid(r.dec.InputOffset(), "nested too deep: at most "+strconv.Itoa(maxDepth)+" levels are accepted")
		}
	}
}

// raw reads a value and returns its bytes in the text, and their position.
func (r *reader) raw() ([]byte, int, error) {
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, 0, r.failed(err)
	}
	end := int(r.dec.InputOffset())
	return r.text[end-len(v) : end], end - len(v), nil
}

// value reads a value of one kind. It is valid until the next read.
func (r *reader) value(kind jsontext.Kind, what string) (jsontext.Value, error) {
	if r.dec.PeekKind() != kind {
		return nil, r.want(what)
	}
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.failed(err)
	}
	return v, nil
}

// quoted reads a string of at most maxText bytes and returns it with its quotes.
func (r *reader) quoted() (jsontext.Value, error) {
	at := r.next()
	v, err := r.value(jsontext.KindString, "a string")
	if err == nil && len(v) > maxText+2 {
		err = r.invalid(at, "a string of "+strconv.Itoa(len(v)-2)+" bytes: at most "+strconv.Itoa(maxText)+" are accepted")
	}
	return v, err
}

// string reads a string of at most maxText bytes.
func (r *reader) string() (string, error) {
	v, err := r.quoted()
	if err != nil {
		return "", err
	}
	return string(r.unquote(v)), nil
}

// unquote returns the text of a valid JSON string, without a copy if it has no escapes.
func (r *reader) unquote(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, v) // the decoder has checked it
	return text
}

// boolean reads true or false.
func (r *reader) boolean() (bool, error) {
	kind := r.dec.PeekKind()
	if kind != jsontext.KindTrue && kind != jsontext.KindFalse {
		return false, r.want("true or false")
	}
	return kind == jsontext.KindTrue, r.skip()
}

// integer reads an integer of 64 bits.
func (r *reader) integer() (int64, error) {
	at := r.next()
	v, err := r.value(jsontext.KindNumber, "a number")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(unsafe.String(&v[0], len(v)), 10, 64)
	if err != nil {
		return 0, r.invalid(at, "want an integer of 64 bits")
	}
	return n, nil
}

// count reads the number of a parameter, which must not be negative.
func (r *reader) count(name []byte) (int64, error) {
	parameter := string(name) // valid until the next read
	n, err := r.integer()
	if err == nil && n < 0 {
		return 0, oip.Errorf(oip.Invalid, "the parameter %s is %d: want 0 or more", oip.Quote(parameter), n)
	}
	return n, err
}
