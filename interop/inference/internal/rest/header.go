package rest

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// The bounds of the JSON of a request, in addition to its length.
const (
	maxTensors = 256     // inputs, and outputs
	maxMembers = 256     // of an object
	maxText    = 4 << 10 // bytes of a string, as written
)

// header is the JSON of an inference request.
type header struct {
	id      string // as written, with its quotes; "" if there is none
	params  params
	inputs  []input
	outputs []output
	special bool // the data has numbers in the form of quoteSpecials
}

// input is a tensor of the request.
type input struct {
	name, datatype string
	shape          []int64
	data           []byte // its JSON, which is part of the text; nil for none
	at             int    // position of data in the text
	params         params
}

// output is a requested tensor.
type output struct {
	name   string
	params params
}

// params are the known parameters of the protocol and its extensions.
type params struct {
	has        field
	binary     bool   // binary_data, or binary_data_output
	size       int64  // binary_data_size: bytes after the JSON
	region     string // shared_memory_region
	offset     int64  // shared_memory_offset
	regionSize int64  // shared_memory_byte_size
	timeout    int64  // microseconds
	classes    int64  // classification
}

// field is a set of members of an object.
type field uint32

const (
	hasBinary field = 1 << iota
	hasSize
	hasRegion
	hasOffset
	hasRegionSize
	hasTimeout
	hasClasses
	hasSequence
	hasSequenceStart
	hasSequenceEnd
	hasPriority
	hasID
	hasParams
	hasInputs
	hasOutputs
	hasName
	hasDatatype
	hasShape
	hasData
)

// The known members of each object.
var (
	requestFields = map[string]field{"id": hasID, "parameters": hasParams, "inputs": hasInputs, "outputs": hasOutputs}
	inputFields   = map[string]field{"name": hasName, "datatype": hasDatatype, "shape": hasShape, "data": hasData, "parameters": hasParams}
	outputFields  = map[string]field{"name": hasName, "parameters": hasParams}
	requestParams = map[string]field{"binary_data_output": hasBinary, "timeout": hasTimeout, "priority": hasPriority,
		"sequence_id": hasSequence, "sequence_start": hasSequenceStart, "sequence_end": hasSequenceEnd}
	inputParams = map[string]field{"binary_data_size": hasSize,
		"shared_memory_region": hasRegion, "shared_memory_offset": hasOffset, "shared_memory_byte_size": hasRegionSize}
	outputParams = map[string]field{"binary_data": hasBinary, "classification": hasClasses,
		"shared_memory_region": hasRegion, "shared_memory_offset": hasOffset, "shared_memory_byte_size": hasRegionSize}
)

// parse reads the JSON of an inference request. Unknown members are ignored, and null means that a
// member is absent. The header refers to the text. Errors: Invalid, Unsupported.
func (h *header) parse(text []byte) error {
	r := newReader(text)
	defer r.release()
	h.special = r.special
	has, err := r.object(requestFields, func(f field, name []byte) error {
		switch f {
		case hasID:
			id, err := r.quoted()
			h.id = string(id)
			return err
		case hasParams:
			return h.params.parse(r, requestParams)
		case hasInputs:
			return r.list(maxTensors, func() error {
				h.inputs = append(h.inputs, input{})
				return h.inputs[len(h.inputs)-1].parse(r)
			})
		case hasOutputs:
			return r.list(maxTensors, func() error {
				h.outputs = append(h.outputs, output{})
				return h.outputs[len(h.outputs)-1].parse(r)
			})
		}
		return r.skip()
	})
	if err != nil {
		return err
	}
	if err := r.end(); err != nil {
		return err
	}
	if has&hasInputs == 0 {
		return oip.Errorf(oip.Invalid, `the request has no "inputs"`)
	}
	return nil
}

func (in *input) parse(r *reader) error {
	has, err := r.object(inputFields, func(f field, _ []byte) (err error) {
		switch f {
		case hasName:
			in.name, err = r.string()
		case hasDatatype:
			in.datatype, err = r.string()
		case hasShape:
			in.shape = make([]int64, 0, 4)
			err = r.list(oip.MaxRank, func() error {
				extent, err := r.integer()
				in.shape = append(in.shape, extent)
				return err
			})
		case hasData:
			in.data, in.at, err = r.raw()
		case hasParams:
			err = in.params.parse(r, inputParams)
		default:
			err = r.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if has&(hasName|hasDatatype|hasShape) != hasName|hasDatatype|hasShape {
		return oip.Errorf(oip.Invalid, `input %s lacks one of "name", "datatype" and "shape"`, oip.Quote(in.name))
	}
	sources := 0
	for _, given := range []bool{in.data != nil, in.params.has&hasSize != 0, in.params.has&hasRegion != 0} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		return oip.Errorf(oip.Invalid, `input %s needs exactly one of "data", the parameter "binary_data_size" and a region of shared memory; it has %d of them`,
			oip.Quote(in.name), sources)
	}
	return in.params.check("input", in.name)
}

func (o *output) parse(r *reader) error {
	has, err := r.object(outputFields, func(f field, _ []byte) (err error) {
		switch f {
		case hasName:
			o.name, err = r.string()
		case hasParams:
			err = o.params.parse(r, outputParams)
		default:
			err = r.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	if has&hasName == 0 {
		return oip.Errorf(oip.Invalid, `a requested output has no "name"`)
	}
	if o.params.classes != 0 {
		return oip.Errorf(oip.Unsupported, "output %s: classification is not supported; request the tensor", oip.Quote(o.name))
	}
	return o.params.check("output", o.name)
}

// parse reads parameters. Unknown parameters belong to the model in other servers. They are ignored,
// except for names that the protocol reserves for servers.
func (p *params) parse(r *reader, known map[string]field) (err error) {
	p.has, err = r.object(known, func(f field, name []byte) (err error) {
		switch f {
		case hasBinary:
			p.binary, err = r.boolean()
		case hasRegion:
			p.region, err = r.string()
		case hasSize:
			p.size, err = r.count(name)
		case hasOffset:
			p.offset, err = r.count(name)
		case hasRegionSize:
			p.regionSize, err = r.count(name)
		case hasClasses:
			p.classes, err = r.count(name)
		case hasTimeout:
			p.timeout, err = r.count(name)
		case hasPriority: // there is one level
			_, err = r.count(name)
		case hasSequence, hasSequenceStart, hasSequenceEnd:
			err = r.noSequence()
		default:
			if string(name) == "headers" || bytes.HasPrefix(name, []byte("triton_")) {
				return oip.Errorf(oip.Invalid, "the parameter %s is reserved", oip.Quote(string(name)))
			}
			err = r.skip()
		}
		return err
	})
	return err
}

// noSequence reads a parameter of a sequence, which must say that there is no sequence.
func (r *reader) noSequence() error {
	switch kind := r.dec.PeekKind(); kind {
	case jsontext.KindFalse:
		return r.skip()
	case jsontext.KindString:
		if id, err := r.string(); err != nil || id == "" {
			return err
		}
	case jsontext.KindNumber:
		if id, err := r.integer(); err != nil || id == 0 {
			return err
		}
	}
	return oip.Errorf(oip.Unsupported, "sequences are not supported: models keep no state between requests")
}

// check checks that a region is complete.
func (p *params) check(tensor, name string) error {
	region := p.has & (hasRegion | hasRegionSize | hasOffset)
	if region != 0 && region&(hasRegion|hasRegionSize) != hasRegion|hasRegionSize {
		return oip.Errorf(oip.Invalid, `%s %s: "shared_memory_region" and "shared_memory_byte_size" need each other`, tensor, oip.Quote(name))
	}
	if region != 0 && p.binary {
		return oip.Errorf(oip.Invalid, `%s %s: "binary_data" and shared memory exclude each other`, tensor, oip.Quote(name))
	}
	return nil
}
