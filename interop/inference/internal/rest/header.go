package rest

import (
	"strings"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// The bounds of a request's JSON, beside its bytes.
const (
	maxTensors = 256     // inputs, and outputs
	maxMembers = 256     // of one object
	maxText    = 4 << 10 // bytes of a name, of an id, as they are written
)

// header is the JSON of an inference request.
type header struct {
	id      string // as it is written, without its quotes; null and "" are none
	params  params
	inputs  []input
	outputs []output
}

// input is a tensor of the request.
type input struct {
	name, datatype string
	shape          []int64
	data           []byte // its JSON, in memory of the whole; nil for none
	params         params
}

// output is a tensor that is asked for.
type output struct {
	name   string
	params params
}

// params are the parameters of the protocol and its extensions that mean something here.
type params struct {
	has        field
	binary     bool   // binary_data, or binary_data_output
	size       int64  // binary_data_size: bytes behind the JSON
	region     string // shared_memory_region
	offset     int64  // shared_memory_offset
	regionSize int64  // shared_memory_byte_size
	timeout    int64  // microseconds
	classes    int64  // classification
}

// field is a set of members that were there.
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

// once adds a member to the set; one that is there already is an error.
func (s *scanner) once(set *field, f field, key []byte) error {
	if *set&f != 0 {
		return s.wrong("the member " + oip.Quote(string(key)) + " is there twice")
	}
	*set |= f
	return nil
}

// members goes through an object and calls each with the key of a member, whose value it reads.
func (s *scanner) members(each func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := s.more(n, '}')
		if err != nil || !more {
			return err
		}
		if n == maxMembers {
			return s.wrong("an object with too many members")
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := each(key); err != nil {
			return err
		}
	}
}

// list goes through an array, and calls each before an element, which it reads.
func (s *scanner) list(most int, each func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	for n := 0; ; n++ {
		more, err := s.more(n, ']')
		if err != nil || !more {
			return err
		}
		if n == most {
			return s.wrong("a list with too many elements")
		}
		if err := each(); err != nil {
			return err
		}
	}
}

// parse reads the JSON of an inference request. What is null counts as not there; members that
// the protocol does not know are passed over. Errors: Invalid, Unsupported.
func (h *header) parse(b []byte) error {
	s := &scanner{b: b}
	var has field
	err := s.members(func(key []byte) error {
		switch string(key) {
		case "id":
			if err := s.once(&has, hasID, key); err != nil || s.literal("null") {
				return err
			}
			raw, err := s.raw()
			if err == nil && len(raw) > maxText {
				err = oip.Errorf(oip.Invalid, `the "id" has %d bytes; at most %d are taken`, len(raw), maxText)
			}
			if err == nil { // it is kept for the response, and not charged
				h.id = string(raw)
			}
			return err
		case "parameters":
			if err := s.once(&has, hasParams, key); err != nil || s.literal("null") {
				return err
			}
			return h.params.parse(s, ofRequest)
		case "inputs":
			if err := s.once(&has, hasInputs, key); err != nil {
				return err
			}
			return s.list(maxTensors, func() error {
				h.inputs = append(h.inputs, input{})
				return h.inputs[len(h.inputs)-1].parse(s)
			})
		case "outputs":
			if err := s.once(&has, hasOutputs, key); err != nil || s.literal("null") {
				return err
			}
			return s.list(maxTensors, func() error {
				h.outputs = append(h.outputs, output{})
				return h.outputs[len(h.outputs)-1].parse(s)
			})
		}
		return s.skip(1)
	})
	if err != nil {
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	if has&hasInputs == 0 {
		return oip.Errorf(oip.Invalid, `the request has no "inputs"`)
	}
	return nil
}

func (in *input) parse(s *scanner) error {
	var has field
	err := s.members(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			if err := s.once(&has, hasName, key); err != nil {
				return err
			}
			in.name, err = s.text()
			return err
		case "datatype":
			if err := s.once(&has, hasDatatype, key); err != nil {
				return err
			}
			in.datatype, err = s.text()
			return err
		case "shape":
			if err := s.once(&has, hasShape, key); err != nil {
				return err
			}
			in.shape = make([]int64, 0, 4)
			return s.list(oip.MaxRank, func() error {
				extent, err := s.integer()
				in.shape = append(in.shape, extent)
				return err
			})
		case "data":
			if err := s.once(&has, hasData, key); err != nil || s.literal("null") {
				return err
			}
			s.peek()
			from := s.i
			err := s.skip(2)
			in.data = s.b[from:s.i]
			return err
		case "parameters":
			if err := s.once(&has, hasParams, key); err != nil || s.literal("null") {
				return err
			}
			return in.params.parse(s, ofInput)
		}
		return s.skip(2)
	})
	if err != nil {
		return err
	}
	if has&(hasName|hasDatatype|hasShape) != hasName|hasDatatype|hasShape {
		return oip.Errorf(oip.Invalid, `input %s lacks one of "name", "datatype" and "shape"`, oip.Quote(in.name))
	}
	ways := 0
	for _, way := range []bool{in.data != nil, in.params.has&hasSize != 0, in.params.has&hasRegion != 0} {
		if way {
			ways++
		}
	}
	if ways != 1 {
		return oip.Errorf(oip.Invalid, `input %s needs one of "data", the parameter "binary_data_size", and a region of shared memory, and has %d of them`,
			oip.Quote(in.name), ways)
	}
	return in.params.check("input", in.name)
}

func (o *output) parse(s *scanner) error {
	var has field
	err := s.members(func(key []byte) (err error) {
		switch string(key) {
		case "name":
			if err := s.once(&has, hasName, key); err != nil {
				return err
			}
			o.name, err = s.text()
			return err
		case "parameters":
			if err := s.once(&has, hasParams, key); err != nil || s.literal("null") {
				return err
			}
			return o.params.parse(s, ofOutput)
		}
		return s.skip(2)
	})
	if err != nil {
		return err
	}
	if has&hasName == 0 {
		return oip.Errorf(oip.Invalid, `a requested output has no "name"`)
	}
	if o.params.classes != 0 {
		return oip.Errorf(oip.Unsupported, "output %s: classification is not served; take the tensor", oip.Quote(o.name))
	}
	return o.params.check("output", o.name)
}

// kind of the thing whose parameters are read.
type kind uint8

const (
	ofRequest kind = iota
	ofInput
	ofOutput
)

// parse reads parameters. Those that nobody here knows are the model's own in other servers;
// models here take none, so that they are passed over, but for names that the protocol keeps
// for servers.
func (p *params) parse(s *scanner, k kind) error {
	return s.members(func(key []byte) (err error) {
		switch name := string(key); {
		case k == ofRequest && name == "binary_data_output", k == ofOutput && name == "binary_data":
			if err := s.once(&p.has, hasBinary, key); err != nil {
				return err
			}
			p.binary, err = s.boolean()
		case k == ofInput && name == "binary_data_size":
			p.size, err = s.count(&p.has, hasSize, key)
		case k != ofRequest && name == "shared_memory_region":
			if err := s.once(&p.has, hasRegion, key); err != nil {
				return err
			}
			p.region, err = s.text()
		case k != ofRequest && name == "shared_memory_offset":
			p.offset, err = s.count(&p.has, hasOffset, key)
		case k != ofRequest && name == "shared_memory_byte_size":
			p.regionSize, err = s.count(&p.has, hasRegionSize, key)
		case k == ofOutput && name == "classification":
			p.classes, err = s.count(&p.has, hasClasses, key)
		case k == ofRequest && name == "timeout":
			p.timeout, err = s.count(&p.has, hasTimeout, key)
		case k == ofRequest && name == "priority": // there is one level
			_, err = s.count(&p.has, hasPriority, key)
		case k == ofRequest && name == "sequence_id":
			return p.noSequence(s, hasSequence, key)
		case k == ofRequest && name == "sequence_start":
			return p.noSequence(s, hasSequenceStart, key)
		case k == ofRequest && name == "sequence_end":
			return p.noSequence(s, hasSequenceEnd, key)
		case k == ofRequest && (name == "headers" || strings.HasPrefix(name, "triton_")):
			return oip.Errorf(oip.Invalid, "the parameter %s is reserved", oip.Quote(name))
		default:
			return s.skip(3)
		}
		return err
	})
}

// count reads a number that is not negative.
func (s *scanner) count(set *field, f field, key []byte) (int64, error) {
	if err := s.once(set, f, key); err != nil {
		return 0, err
	}
	n, err := s.integer()
	if err == nil && n < 0 {
		return 0, oip.Errorf(oip.Invalid, "the parameter %s is %d", oip.Quote(string(key)), n)
	}
	return n, err
}

// noSequence passes over a parameter of sequences that says that there is none.
func (p *params) noSequence(s *scanner, f field, key []byte) error {
	if err := s.once(&p.has, f, key); err != nil {
		return err
	}
	if s.literal("false") || s.literal(`""`) {
		return nil
	}
	if c := s.peek(); c == '0' {
		n, err := s.integer()
		if err != nil || n == 0 {
			return err
		}
	}
	return oip.Errorf(oip.Unsupported, "sequences are not served: no model here keeps a state between requests")
}

// check wants all or nothing of a region.
func (p *params) check(what, name string) error {
	region := p.has & (hasRegion | hasRegionSize | hasOffset)
	if region != 0 && region&(hasRegion|hasRegionSize) != hasRegion|hasRegionSize {
		return oip.Errorf(oip.Invalid, `%s %s: "shared_memory_region" and "shared_memory_byte_size" come together`, what, oip.Quote(name))
	}
	if region != 0 && p.binary {
		return oip.Errorf(oip.Invalid, `%s %s: "binary_data" and shared memory exclude each other`, what, oip.Quote(name))
	}
	return nil
}
