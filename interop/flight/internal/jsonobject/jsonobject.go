// Package jsonobject strictly parses JSON objects from peers, so that two parsers cannot
// interpret the same bytes differently. encoding/json alone accepts "SHAPE" for "shape", uses
// the last of several members with the same name, and reads null as zero.
package jsonobject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Object holds the members of an object by their exact names.
type Object map[string]json.RawMessage

// Read parses one object and refuses duplicate names.
func Read(text []byte) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("not a JSON object"), err)
	}
	o := Object{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // the decoder accepts only strings as names
		if _, twice := o[name]; twice {
			return nil, fmt.Errorf("duplicate name %.40q", name)
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

// Value returns a member that must be present and not null.
func Value[T any](o Object, name string) (T, error) {
	var v *T
	if err := o.value(name, &v); err != nil || v == nil {
		var zero T
		return zero, errors.Join(fmt.Errorf("%q is missing, or not of type %T", name, zero), err)
	}
	return *v, nil
}

// List returns a list member without nulls. It returns nil if the member is absent or null.
func List[T any](o Object, name string) ([]T, error) {
	var found []*T
	if err := o.value(name, &found); err != nil || found == nil {
		return nil, err
	}
	list := make([]T, len(found))
	for i, v := range found {
		if v == nil {
			return nil, fmt.Errorf("%q contains null", name)
		}
		list[i] = *v
	}
	return list, nil
}

// value decodes a member into the variable that into points to, if the member is present.
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
