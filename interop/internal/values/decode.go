package values

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
)

// Decoder reads values from another process, which is not trusted. It checks lengths before it
// allocates memory for them, and refuses addresses.
type Decoder struct {
	// Bytes are the bytes that are not read yet. They need not be aligned.
	Bytes []byte

	// Array returns the value of a Number. If it is nil, the decoder refuses every Number.
	Array func(n uint64) (any, error)

	// Tuple returns the value of a tuple. If it is nil, a tuple is a []any.
	Tuple func([]any) any

	depth int
}

var errShort = errors.New("the data ends too early")

// Value reads a value:
//
//	None          nil
//	Bool          bool
//	Int           int64
//	Uint, Big     *big.Int
//	Float         float64
//	Complex       complex128
//	Text          string
//	Bytes         []byte
//	List          []any
//	Tuple         the result of the field Tuple
//	Dict          map[string]any if all keys are texts, else map[any]any
//	Number        the result of the field Array
//
// The result shares no memory with Bytes.
func (d *Decoder) Value() (any, error) {
	w, err := d.word()
	if err != nil {
		return nil, err
	}
	n := w >> kindBits
	kind := Kind(w & (1<<kindBits - 1))
	switch kind {
	case Text:
		b, err := d.take(n)
		return string(b), err
	case Bytes:
		b, err := d.take(n)
		return append([]byte{}, b...), err
	case Big:
		return d.big(n)
	case List, Tuple, Dict:
		return d.container(kind, n)
	case Number:
		if d.Array == nil {
			return nil, errors.New("an array is not allowed here")
		}
		return d.Array(n)
	case Object, Array:
		return nil, errors.New("an address of another process")
	}
	return d.scalar(kind, n)
}

// End returns an error if bytes are left.
func (d *Decoder) End() error {
	if len(d.Bytes) > 0 {
		return fmt.Errorf("%d bytes after its end", len(d.Bytes))
	}
	return nil
}

// Dict reads n entries of a dictionary, without its first word. All keys must be texts.
func (d *Decoder) Dict(n uint64) (map[string]any, error) {
	v, err := d.dict(n)
	if err != nil {
		return nil, err
	}
	named, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("a name is not a text")
	}
	return named, nil
}

func (d *Decoder) scalar(kind Kind, n uint64) (any, error) {
	switch {
	case kind == None && n == 0:
		return nil, nil
	case kind == Bool && n <= 1:
		return n == 1, nil
	case kind < Int || kind > Complex || n != 0:
		return nil, fmt.Errorf("kind %d with %d", kind, n)
	}
	w, err := d.word()
	if err != nil {
		return nil, err
	}
	switch kind {
	case Int:
		return int64(w), nil
	case Float:
		return math.Float64frombits(w), nil
	case Complex:
		im, err := d.word()
		return complex(math.Float64frombits(w), math.Float64frombits(im)), err
	}
	if w <= math.MaxInt64 { // It must be an Int. Otherwise one key could occur twice in a map.
		return nil, fmt.Errorf("the integer %d as a large one", w)
	}
	return new(big.Int).SetUint64(w), nil
}

func (d *Decoder) word() (uint64, error) {
	if len(d.Bytes) < 8 {
		return 0, errShort
	}
	w := binary.NativeEndian.Uint64(d.Bytes)
	d.Bytes = d.Bytes[8:]
	return w, nil
}

// take reads n bytes and the padding up to a whole word. There is at least one byte of padding.
func (d *Decoder) take(n uint64) ([]byte, error) {
	if n >= uint64(len(d.Bytes)) || (n/8+1)*8 > uint64(len(d.Bytes)) {
		return nil, errShort
	}
	b := d.Bytes[:n]
	d.Bytes = d.Bytes[(n/8+1)*8:]
	return b, nil
}

func (d *Decoder) big(n uint64) (any, error) {
	b, err := d.take(n)
	if err != nil {
		return nil, err
	}
	v, ok := new(big.Int).SetString(string(b), 16)
	if !ok || v.IsInt64() || v.IsUint64() || v.Text(16) != string(b) {
		return nil, fmt.Errorf("%.40q as a large integer", b)
	}
	return v, nil
}

func (d *Decoder) container(kind Kind, n uint64) (any, error) {
	if d.depth == MaxNesting {
		return nil, ErrTooDeep
	}
	d.depth++
	defer func() { d.depth-- }()
	if kind == Dict {
		return d.dict(n)
	}
	if err := d.fits(n, 8); err != nil {
		return nil, err
	}
	v := make([]any, 0, min(n, 4096))
	for range n {
		x, err := d.Value()
		if err != nil {
			return nil, err
		}
		v = append(v, x)
	}
	if kind == Tuple && d.Tuple != nil {
		return d.Tuple(v), nil
	}
	return v, nil
}

// fits checks that the rest can hold n elements of at least so many bytes.
func (d *Decoder) fits(n uint64, bytes int) error {
	if n > uint64(len(d.Bytes)/bytes) {
		return fmt.Errorf("%d elements in %d bytes", n, len(d.Bytes))
	}
	return nil
}

func (d *Decoder) dict(n uint64) (any, error) {
	if err := d.fits(n, 16); err != nil {
		return nil, err
	}
	named := make(map[string]any, min(n, 4096))
	var other map[any]any // nil until a key is not a text
	for range n {
		k, v, err := d.entry()
		if err != nil {
			return nil, err
		}
		name, ok := k.(string)
		if !ok && other == nil {
			other = make(map[any]any, min(n, 4096))
			for k, v := range named {
				other[k] = v
			}
		}
		var twice bool
		if other == nil {
			_, twice = named[name]
			named[name] = v
		} else {
			_, twice = other[k]
			other[k] = v
		}
		if twice {
			return nil, fmt.Errorf("the key %v twice", k)
		}
	}
	if other != nil {
		return other, nil
	}
	return named, nil
}

func (d *Decoder) entry() (k, v any, err error) {
	if k, err = d.Value(); err != nil {
		return nil, nil, err
	}
	switch k.(type) {
	case nil, bool, int64, *big.Int, float64, complex128, string:
	default:
		return nil, nil, fmt.Errorf("a key of type %T", k)
	}
	v, err = d.Value()
	return k, v, err
}
