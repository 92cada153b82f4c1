package rest

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// header is the JSON of an inference request. It refers to the text. Unknown members are ignored.
type header struct {
	ID      raw          `json:"id"` // as written, with its quotes
	Params  ownParams    `json:"parameters"`
	Inputs  list[input]  `json:"inputs"`
	Outputs list[output] `json:"outputs"`
}

// input is a tensor of the request.
type input struct {
	Name     string      `json:"name"`
	Datatype string      `json:"datatype"`
	Shape    list[int64] `json:"shape"`
	Data     raw         `json:"data"`
	Params   params      `json:"parameters"`

	tensor *engine.Input // of the request in the engine
}

// output is a requested tensor.
type output struct {
	Name   string `json:"name"`
	Params params `json:"parameters"`
}

// params are the known parameters of requests, inputs and outputs. Others are ignored.
type params struct {
	BinaryOutput bool    `json:"binary_data_output"`
	Binary       *bool   `json:"binary_data"`
	Size         *uint64 `json:"binary_data_size"` // bytes after the JSON
	Region       string  `json:"shared_memory_region"`
	Offset       uint64  `json:"shared_memory_offset"`
	RegionSize   *uint64 `json:"shared_memory_byte_size"`
	Timeout      uint64  `json:"timeout"` // microseconds
	Classes      uint64  `json:"classification"`
	Sequence     raw     `json:"sequence_id"` // not decoded: a long value would take much memory
	Start        bool    `json:"sequence_start"`
	End          bool    `json:"sequence_end"`
}

// ownParams are the parameters of the request, also as they are written.
type ownParams struct {
	params
	all raw
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (p *ownParams) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := p.all.UnmarshalJSONFrom(dec); err != nil || p.all.text == nil {
		return err
	}
	return json.Unmarshal(p.all.text, &p.params, jsontext.AllowDuplicateNames(true))
}

// forModel returns the parameters that are strings, numbers or bools. A whole number is an int64 if it fits.
func (p *ownParams) forModel() (map[string]any, error) {
	all := map[string]any{}
	if p.all.text == nil {
		return all, nil
	}
	if len(p.all.text) > maxSmall {
		return nil, oip.Errorf(oip.TooLarge, "the parameters of a request to this model may have %d bytes", maxSmall)
	}
	var values map[string]jsontext.Value
	if err := json.Unmarshal(p.all.text, &values, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, err
	}
	for name, v := range values {
		var value any
		switch v.Kind() {
		case jsontext.KindString, jsontext.KindTrue, jsontext.KindFalse, jsontext.KindNumber:
			if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				value = n
			} else if err := json.Unmarshal(v, &value); err != nil {
				return nil, err
			}
			all[name] = value
		}
	}
	return all, nil
}

// raw is a JSON value in the text; nil for none and for null.
type raw struct {
	text jsontext.Value
	at   int // position in the text
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. The value is a part of the text, not a copy.
func (v *raw) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err == nil && value.Kind() != jsontext.KindNull {
		v.text, v.at = value, int(dec.InputOffset())-len(value)
	}
	return err
}

// list is a list of at most maxList elements.
type list[T any] []T

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (l *list[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != jsontext.KindBeginArray {
		return json.UnmarshalDecode(dec, (*[]T)(l))
	}
	_, err := dec.ReadToken()
	*l = []T{}
	for err == nil && dec.PeekKind() != jsontext.KindEndArray {
		if len(*l) == maxList {
			return oip.Errorf(oip.Invalid, "too many elements: at most %d are accepted", maxList)
		}
		*l = append(*l, *new(T))
		err = json.UnmarshalDecode(dec, &(*l)[len(*l)-1])
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	return err
}

// decode reads a JSON value, which may refer to the text. Of members with the same name, the last one counts.
// Errors: Invalid.
func decode(text []byte, to any) error {
	err := json.Unmarshal(text, to, jsontext.AllowDuplicateNames(true)) // names need no memory then
	if _, own := errors.AsType[*oip.Error](err); err == nil || own {
		return err
	}
	at, problem := int64(len(text)), "unexpected end"
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !errors.Is(err, io.ErrUnexpectedEOF) {
		at, problem = e.ByteOffset, e.Err.Error()
	} else if e, ok := errors.AsType[*json.SemanticError](err); ok {
		at, problem = e.ByteOffset, "a value of another type was expected for "+oip.Quote(string(e.JSONPointer))
	}
	return oip.Errorf(oip.Invalid, "invalid JSON in the request at byte %d: %s", at, problem)
}

// parse reads the JSON of an inference request. Errors: Invalid, Unsupported.
func (h *header) parse(text []byte) error {
	if err := decode(text, h); err != nil {
		return err
	}
	if h.Inputs == nil {
		return oip.Errorf(oip.Invalid, `the request has no "inputs"`)
	}
	if id := h.ID.text; id != nil && (id.Kind() != jsontext.KindString || len(id) > maxID) {
		return oip.Errorf(oip.Invalid, `"id" is not a string of at most %d bytes`, maxID)
	}
	h.ID.text = bytes.Clone(h.ID.text) // the text is freed before the response
	if err := h.Params.check("the request", ""); err != nil {
		return err
	}
	for i := range h.Inputs {
		if err := h.Inputs[i].check(); err != nil {
			return err
		}
	}
	for i := range h.Outputs {
		o := &h.Outputs[i]
		if o.Name == "" {
			return oip.Errorf(oip.Invalid, `a requested output has no "name"`)
		}
		if err := o.Params.check("output", o.Name); err != nil {
			return err
		}
	}
	return nil
}

func (in *input) check() error {
	if in.Name == "" || in.Datatype == "" || in.Shape == nil {
		return oip.Errorf(oip.Invalid, `an input lacks one of "name", "datatype" and "shape"`)
	}
	sources := 0
	for _, given := range []bool{in.Data.text != nil, in.Params.Size != nil, in.Params.Region != ""} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		return oip.Errorf(oip.Invalid, `input %s needs exactly one of "data", the parameter "binary_data_size" and a region of shared memory; it has %d of them`,
			oip.Quote(in.Name), sources)
	}
	return in.Params.check("input", in.Name)
}

// noSequence are the values of "sequence_id" that mean no sequence.
var noSequence = []string{"", `""`, "0", "false"}

// check checks the parameters of the request or of a tensor.
func (p *params) check(what, name string) error {
	fail := func(kind oip.Kind, problem string) error {
		if name != "" {
			what += " " + oip.Quote(name)
		}
		return oip.Errorf(kind, "%s: %s", what, problem)
	}
	switch {
	case p.Classes != 0:
		return fail(oip.Unsupported, "classification is not supported; request the tensor")
	case p.Start, p.End, !slices.Contains(noSequence, string(p.Sequence.text)):
		return fail(oip.Unsupported, "sequences are not supported: models keep no state between requests")
	case (p.Region != "") != (p.RegionSize != nil), p.Region == "" && p.Offset != 0:
		return fail(oip.Invalid, `"shared_memory_region" and "shared_memory_byte_size" need each other`)
	case p.Region != "" && p.Binary != nil && *p.Binary:
		return fail(oip.Invalid, `"binary_data" and shared memory exclude each other`)
	}
	p.Sequence.text = nil // the text is freed before the response
	return nil
}

// inJSON reports whether the elements of result i are sent in the JSON, not as binary data or in a region.
func (h *header) inJSON(i int) bool {
	binary := h.Params.BinaryOutput
	if i < len(h.Outputs) { // otherwise all outputs are requested
		p := &h.Outputs[i].Params
		if p.Region != "" {
			return false
		}
		if p.Binary != nil {
			binary = *p.Binary
		}
	}
	return !binary
}
