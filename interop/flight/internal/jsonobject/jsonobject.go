// Package jsonobject reads JSON objects of peers so that other readers cannot read
// something else of the same bytes: encoding/json takes "SHAPE" for "shape", the last of
// two members of one name, and null for a zero.
package jsonobject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Object is the members of an object, by their names as they stand there.
type Object map[string]json.RawMessage

// Read reads one object of which no name comes twice.
func Read(text []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("no JSON object"), err)
	}
	o := Object{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // the decoder lets nothing else be a name
		if _, twice := o[name]; twice {
			return nil, fmt.Errorf("%.40q comes twice", name)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		o[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON object")
	}
	return o, nil
}

// Value is a member that has to be there, and not null.
func Value[T any](o Object, name string) (T, error) {
	var v *T
	if err := o.value(name, &v); err != nil || v == nil {
		var zero T
		return zero, errors.Join(fmt.Errorf("no %q of type %T", name, zero), err)
	}
	return *v, nil
}

// List is a member that is a list without nulls; nil where it is not there, or null.
func List[T any](o Object, name string) ([]T, error) {
	var found []*T
	if err := o.value(name, &found); err != nil || found == nil {
		return nil, err
	}
	list := make([]T, len(found))
	for i, v := range found {
		if v == nil {
			return nil, fmt.Errorf("%q has a null", name)
		}
		list[i] = *v
	}
	return list, nil
}

func (o Object) value(name string, into any) error {
	raw, ok := o[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	return nil
}
