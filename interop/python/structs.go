package python

import (
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"sync"
)

// tagKey names the struct tag: `python:"name,omitempty"`, "-" for a field that is left out.
const tagKey = "python"

// field is one field of a struct as Python sees it.
type field struct {
	name      string
	index     []int // as of reflect.VisibleFields: through embedded structs
	omitempty bool
	tagged    bool // the name is a tag's
}

// structFields is what is known of a struct type, or why it cannot be converted.
type structFields struct {
	list []field
	err  error
}

var (
	structTypes sync.Map // reflect.Type to *structFields
	typeBigInt  = reflect.TypeFor[*big.Int]()
)

// fieldsOf lists the fields of a struct type, those of embedded structs without a tag of
// their own among them. Of several with one name it is that of the least depth; of several
// there, the one whose tag names it, and none where that does not decide: encoding/json's
// rules, but that two of one struct are an error.
func fieldsOf(t reflect.Type) ([]field, error) {
	if s, ok := structTypes.Load(t); ok {
		return s.(*structFields).list, s.(*structFields).err
	}
	s := &structFields{}
	s.err = s.add(t, nil, map[reflect.Type]bool{})
	if s.err != nil {
		s.list = nil
	}
	s.list = visible(s.list)
	structTypes.Store(t, s)
	return s.list, s.err
}

// visible keeps the fields that no other one hides.
func visible(all []field) []field {
	byName := map[string][]int{}
	for i, f := range all {
		byName[f.name] = append(byName[f.name], i)
	}
	kept := make([]field, 0, len(all))
	for i, f := range all {
		hidden := false
		for _, k := range byName[f.name] {
			o := all[k]
			shallower := len(o.index) < len(f.index)
			rival := k != i && len(o.index) == len(f.index) && (o.tagged || !f.tagged)
			hidden = hidden || shallower || rival
		}
		if !hidden {
			kept = append(kept, f)
		}
	}
	return kept
}

func (s *structFields) add(t reflect.Type, at []int, within map[reflect.Type]bool) error {
	if within[t] {
		return fmt.Errorf("it embeds itself, by way of %s", t)
	}
	within[t] = true
	defer delete(within, t)
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup(tagKey)
		name, rest, _ := strings.Cut(tag, ",")
		if f.Name == "_" || name == "-" && rest == "" {
			continue
		}
		index := append(append([]int{}, at...), i)
		if f.Anonymous && name == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct && (f.IsExported() || f.Type.Kind() == reflect.Struct) {
				if err := s.add(inner, index, within); err != nil {
					return err
				}
				continue
			}
		}
		if !f.IsExported() {
			return fmt.Errorf("its field %s is not exported: export it, or tag it `%s:\"-\"` to leave it out", f.Name, tagKey)
		}
		if rest != "" && rest != "omitempty" {
			return fmt.Errorf("the tag of its field %s says %q: known is \"omitempty\"", f.Name, rest)
		}
		tagged = tagged && name != ""
		if !tagged {
			name = f.Name
		}
		if names[name] {
			return fmt.Errorf("two of its fields are named %q", name)
		}
		names[name] = true
		s.list = append(s.list, field{name, index, rest == "omitempty", tagged})
	}
	return nil
}

// convertStruct makes a dict of the fields. Those of an embedded nil pointer are left out.
func (n *nesting) convertStruct(v reflect.Value) (ptr, error) {
	fields, err := fieldsOf(v.Type())
	if err != nil {
		return nil, &ConversionError{From: v.Type().String(), To: pythonObject, Err: err}
	}
	if err := n.enter(identity{}, v.Type().String(), pythonObject); err != nil {
		return nil, err
	}
	return atOnce(func() (ptr, error) {
		refs := make([]ptr, 0, 2*len(fields))
		for _, f := range fields {
			value, err := v.FieldByIndexErr(f.index)
			if err != nil || f.omitempty && value.IsZero() {
				continue
			}
			n.at(inElement, f.name)
			p, err := n.convert(value.Interface())
			if err != nil {
				dropAll(refs)
				return nil, err
			}
			key, err := opFromText(f.name).take()
			if err != nil {
				opDecref(p)
				dropAll(refs)
				return nil, err
			}
			refs = append(refs, key, p)
		}
		n.leave()
		return opFromDict(refs).take()
	})
}

// holdsStruct reports whether values of a type are, or hold, structs that are filled by
// name. Those types are decoded as they ask to be; the rest fits what Value gives.
func holdsStruct(t reflect.Type) bool { return structIn(t, map[reflect.Type]bool{}) }

func structIn(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] || t == typeObject || t == typeBigInt {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Struct:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return structIn(t.Elem(), seen)
	case reflect.Map:
		return structIn(t.Elem(), seen)
	}
	return false
}

// decode fills dst, of a type that holds structs, from an object; after an error n is
// where it arose, and dst is as far as it came.
func (n *nesting) decode(dst reflect.Value, p ptr) error {
	if !holdsStruct(dst.Type()) {
		v, err := n.value(p)
		if err != nil {
			return err
		}
		if err := fit(dst, v); err != nil {
			releaseAll([]any{v})
			return err
		}
		return nil
	}
	r := opView(p)
	if r.code != codeOK {
		return r.err()
	}
	if dst.Kind() == reflect.Pointer {
		if r.kind == kindNone {
			dst.SetZero()
			return nil
		}
		target := reflect.New(dst.Type().Elem())
		if err := n.decode(target.Elem(), p); err != nil {
			releaseFilled(target)
			return err
		}
		dst.Set(target)
		return nil
	}
	switch {
	case dst.Kind() == reflect.Struct:
		return n.decodeStruct(dst, p, r.kind)
	case dst.Kind() == reflect.Map && r.kind == kindDict:
		return n.decodeMap(dst, p, int(r.num))
	case (dst.Kind() == reflect.Slice || dst.Kind() == reflect.Array) && (r.kind == kindList || r.kind == kindTuple):
		return n.decodeList(dst, p, int(r.num))
	case r.kind == kindNone && (dst.Kind() == reflect.Slice || dst.Kind() == reflect.Map):
		dst.SetZero()
		return nil
	}
	return unlike(dst, p)
}

func unlike(dst reflect.Value, p ptr) error {
	name, r := opText(p, textType)
	if r.code != codeOK {
		return r.err()
	}
	return &ConversionError{From: "Python " + name, To: dst.Type().String()}
}

// decodeStruct takes the fields from the items of a dict, or from the attributes of any
// other object.
func (n *nesting) decodeStruct(dst reflect.Value, p ptr, kind int) error {
	fields, err := fieldsOf(dst.Type())
	if err != nil {
		return &ConversionError{From: "a Python object", To: dst.Type().String(), Err: err}
	}
	if kind != kindDict && kind != kindOther && kind != kindTuple { // a named tuple has attributes
		return unlike(dst, p)
	}
	if err := n.enter(identity{address: p}, "an object", dst.Type().String()); err != nil {
		return err
	}
	var missing []field
	for _, f := range fields {
		n.at(inElement, f.name)
		v, err := named(p, f.name, kind)
		if err != nil {
			return err
		}
		if v == nil {
			if !f.omitempty && dst.Type().FieldByIndex(f.index).Type.Kind() != reflect.Pointer {
				missing = append(missing, f)
			}
			continue
		}
		err = n.decode(fieldIn(dst, f.index), v)
		opDecref(v)
		if err != nil {
			return err
		}
	}
	for _, f := range missing {
		// Behind an embedded pointer none need be there: then it stays nil.
		if _, err := dst.FieldByIndexErr(f.index); err == nil {
			n.at(inElement, f.name)
			return &ConversionError{From: "a Python object", To: dst.Type().String(),
				Err: fmt.Errorf("it has no %q; tag the field omitempty where that may be", f.name)}
		}
	}
	n.leave()
	return nil
}

// named returns a new reference to an item or an attribute, nil where there is none.
func named(p ptr, name string, kind int) (ptr, error) {
	var r ret
	missing := AttributeError
	if kind != kindDict {
		r = opGetAttr(p, name)
	} else {
		key, err := opFromText(name).take()
		if err != nil {
			return nil, err
		}
		r = opGetItem(p, key)
		opDecref(key)
		missing = KeyError
	}
	if r.code == codeOK {
		return r.val, nil
	}
	err := r.err()
	if e, ok := err.(*Error); ok && e.Is(missing) { //nolint:errorlint // r's own, which wraps nothing
		return nil, nil
	}
	return nil, err
}

// fieldIn is a field, behind embedded pointers that are made where they are nil.
func fieldIn(v reflect.Value, index []int) reflect.Value {
	for i, x := range index {
		if i > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(x)
	}
	return v
}

func (n *nesting) decodeList(dst reflect.Value, p ptr, length int) error {
	refs := make([]ptr, length)
	if r := opItems(p, refs); r.code != codeOK {
		return r.err()
	}
	defer dropAll(refs)
	if dst.Kind() == reflect.Array && dst.Len() != length {
		return &ConversionError{From: "a list or tuple", To: dst.Type().String(), Err: fmt.Errorf("it has %d elements", length)}
	}
	if err := n.enter(identity{address: p}, "a list or tuple", dst.Type().String()); err != nil {
		return err
	}
	if dst.Kind() == reflect.Slice {
		dst.Set(reflect.MakeSlice(dst.Type(), length, length))
	}
	for i, e := range refs {
		n.at(inElement, i)
		if err := n.decode(dst.Index(i), e); err != nil {
			return err
		}
	}
	n.leave()
	return nil
}

func (n *nesting) decodeMap(dst reflect.Value, p ptr, length int) error {
	refs := make([]ptr, 2*length)
	if r := opDictItems(p, refs); r.code != codeOK {
		return r.err()
	}
	defer dropAll(refs)
	if err := n.enter(identity{address: p}, "a dict", dst.Type().String()); err != nil {
		return err
	}
	t := dst.Type()
	m := reflect.MakeMapWithSize(t, length)
	for i := range length {
		k, v := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		if err := n.decodePair(i, k, v, refs[2*i], refs[2*i+1]); err != nil {
			for _, filled := range []reflect.Value{k, v, m} {
				releaseFilled(filled)
			}
			return err
		}
		m.SetMapIndex(k, v)
	}
	dst.Set(m)
	n.leave()
	return nil
}

// decodePair fills the key and the value of a dict's entry number i.
func (n *nesting) decodePair(i int, k, v reflect.Value, key, value ptr) error {
	n.at(inKey, i)
	if err := n.decode(k, key); err != nil {
		return err
	}
	if !k.Comparable() {
		return &ConversionError{From: "a dict", To: "a Go map", Err: fmt.Errorf("a key is a %T", k.Interface())}
	}
	n.at(inElement, k.Interface())
	return n.decode(v, value)
}

// decodeInto fills dst from an object; after an error it holds no Objects.
func decodeInto(dst reflect.Value, o *Object) error {
	return with(func() error {
		var n nesting
		err := n.locate(n.decode(dst, o.ptr("As")))
		if err != nil {
			releaseFilled(dst)
		}
		return err
	})
}

// releaseFilled releases the Objects in what a decoding has filled so far.
func releaseFilled(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			releaseAll([]any{v.Interface()})
		}
	case reflect.Pointer:
		if o, ok := v.Interface().(*Object); ok {
			o.Release()
		} else if !v.IsNil() && v.Type() != typeBigInt {
			releaseFilled(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct {
				releaseFilled(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			releaseFilled(v.Index(i))
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			releaseFilled(it.Key())
			releaseFilled(it.Value())
		}
	}
}
