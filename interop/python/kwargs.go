package python

import (
	"errors"
	"fmt"

	"github.com/usmbridge/usmbridge/interop/internal/calling"
)

// Kwargs are the keyword arguments of a call; the order does not matter to Python
// functions that take them by name, and is not kept. What stands under the name "**" is
// spread, as Python's f(**x) does: a struct, or a pointer to one, by the names that
// Interpreter.New gives to its fields, a map by its keys, an Object that is a dict. A name that
// comes twice is an error.
type Kwargs map[string]any

// spread is the name of what stands for several keyword arguments.
const spread = "**"

// spreadOut returns keyword arguments with those that stand under "**" in their places. The
// Objects made for that are the caller's to release.
func (k Kwargs) spreadOut() (all Kwargs, made []*Object, err error) {
	several, there := k[spread]
	if !there {
		return k, nil, nil
	}
	all = make(Kwargs, len(k))
	for name, v := range k {
		if name != spread {
			all[name] = v
		}
	}
	items, err := dictItems(several)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i < len(items); i += 2 {
		name, r := "", opView(items[i])
		err = r.err()
		if r.code == codeOK && r.kind != kindStr {
			err = errNoName
		} else if r.code == codeOK {
			name, r = opText(items[i], textValue)
			err = r.err()
		}
		if _, twice := all[name]; err == nil && twice {
			err = fmt.Errorf("%q comes twice", name)
		}
		if err != nil {
			dropAll(items[i:])
			releaseObjects(made)
			return nil, nil, err
		}
		opDecref(items[i])
		o := own(items[i+1])
		all[name], made = o, append(made, o)
	}
	return all, made, nil
}

func init() {
	calling.Spread = func(kwargs map[string]any) (map[string]any, func(), error) {
		all, made, err := Kwargs(kwargs).spreadOut()
		return all, func() { releaseObjects(made) }, err
	}
}

var errNoName = errors.New("a key is no string")

// dictItems returns new references to the keys and values of the dict that a value becomes.
func dictItems(v any) ([]ptr, error) {
	p, err := convert(v)
	if err != nil {
		return nil, err
	}
	defer opDecref(p)
	r := opView(p)
	if r.code != codeOK {
		return nil, r.err()
	}
	if r.kind != kindDict {
		return nil, &ConversionError{From: fmt.Sprintf("%T", v), To: "keyword arguments", Err: errors.New("a struct, a map or a dict is wanted")}
	}
	items := make([]ptr, 2*r.num)
	if r = opDictItems(p, items); r.code != codeOK {
		return nil, r.err()
	}
	return items, nil
}

func releaseObjects(objects []*Object) {
	for _, o := range objects {
		o.Release()
	}
}
