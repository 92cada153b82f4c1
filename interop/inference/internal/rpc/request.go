package rpc

import (
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
)

// The bounds of a request's small parts.
const (
	maxName       = 1 << 10 // bytes of a name, of an id
	maxParameter  = 4 << 10 // bytes of a parameter that is text
	maxParameters = 1 << 10 // in one request
	maxTensors    = 1 << 10 // inputs, and outputs asked for
)

// request is one ModelInferRequest, decoded while it arrives. The zero value is empty; end releases
// everything.
type request struct {
	begin  func(model, version string) (*engine.Request, error)
	client func() peercred.Client // the client of the request
	text   text

	model, version, id string
	timeout            time.Duration
	emptyFinal         bool // the client wants a mark on the last response
	parameters         int
	outputs            int

	r       *engine.Request // nil until the first tensor
	pending []*engine.Input // inputs whose bytes have not arrived, in order
	names   []string        // of pending
	given   int             // inputs so far
	raw     int             // raw contents so far
	typed   bool            // an input had its elements one by one
}

// end releases the request.
func (q *request) end() {
	if q.r != nil {
		q.r.End()
		q.r = nil
	}
}

// read decodes the message. The fields must be in the order of their numbers, or in an order that
// works as well. Errors: *oip.Error for a request that is refused; others for bytes that are not a
// message, and for a transport that ended.
func (q *request) read(in *codec.Incoming) error {
	p := outermost(in)
	for {
		num, typ, ok, err := p.field()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		switch num {
		case 1:
			err = q.name(p, typ, "model_name", &q.model)
		case 2:
			err = q.name(p, typ, "model_version", &q.version)
		case 3:
			q.id, err = q.text.read(p, typ, "id", maxName)
		case 4:
			err = q.parameter(p, typ)
		case 5:
			err = q.input(p, typ)
		case 6:
			err = q.output(p, typ)
		case 7:
			err = q.rawContents(p, typ)
		default:
			err = p.in.Skip(typ)
		}
		if err != nil {
			return err
		}
	}
	if err := q.started(); err != nil {
		return err
	}
	if n := len(q.pending); n > 0 {
		return oip.Errorf(oip.Invalid, "input %s has no contents: %d of the inputs have neither raw_input_contents, contents nor a shared memory region",
			oip.Quote(q.names[len(q.names)-n]), n)
	}
	return nil
}

// name reads a field that must precede the tensors.
func (q *request) name(p part, typ protowire.Type, what string, to *string) error {
	s, err := q.text.read(p, typ, what, maxName)
	if err == nil && q.r != nil && s != *to {
		err = oip.Errorf(oip.Invalid, "%s comes behind the tensors: fields are wanted in the order of their numbers", what)
	}
	*to = s
	return err
}

// started admits the request, once.
func (q *request) started() (err error) {
	if q.r != nil {
		return nil
	}
	if q.model == "" {
		return oip.Errorf(oip.Invalid, "the request has no model_name, or has it behind its tensors")
	}
	if q.r, err = q.begin(q.model, q.version); err != nil {
		q.r = nil
		return err
	}
	q.r.SetTimeout(q.timeout)
	return nil
}

// value is the value of a parameter.
type value struct {
	number int64
	text   string
	flag   bool
}

// entry reads one entry of a map of parameters.
func (q *request) entry(p part, typ protowire.Type) (key string, v value, err error) {
	if q.parameters++; q.parameters > maxParameters {
		return "", v, oip.Errorf(oip.TooLarge, "more than %d parameters", maxParameters)
	}
	e, err := p.within(typ)
	if err != nil {
		return "", v, err
	}
	for {
		num, typ, ok, err := e.field()
		if err != nil || !ok {
			return key, v, err
		}
		switch num {
		case 1:
			key, err = q.text.read(e, typ, "the name of a parameter", maxName)
		case 2:
			var w part
			if w, err = e.within(typ); err == nil {
				err = q.value(w, &v)
			}
		default:
			err = e.in.Skip(typ)
		}
		if err != nil {
			return "", v, err
		}
	}
}

// value reads an InferParameter; of several choices the last one counts.
func (q *request) value(p part, v *value) error {
	for {
		num, typ, ok, err := p.field()
		if err != nil || !ok {
			return err
		}
		var n uint64
		switch num {
		case 1:
			n, err = p.number(typ)
			*v = value{flag: n != 0}
		case 2, 5:
			n, err = p.number(typ)
			if num == 5 && n > math.MaxInt64 {
				n = math.MaxInt64
			}
			*v = value{number: int64(n)}
		case 3:
			*v = value{}
			v.text, err = q.text.read(p, typ, "a parameter", maxParameter)
		default:
			err = p.in.Skip(typ)
		}
		if err != nil {
			return err
		}
	}
}

// parameter reads one of the request. Those that have no meaning here are passed over, as
// the protocol has it.
func (q *request) parameter(p part, typ protowire.Type) error {
	key, v, err := q.entry(p, typ)
	if err != nil {
		return err
	}
	switch key {
	case "timeout": // in microseconds
		if v.text != "" {
			if v.number, err = strconv.ParseInt(v.text, 10, 64); err != nil {
				return oip.Errorf(oip.Invalid, "parameter timeout is %s, not a number of microseconds", oip.Quote(v.text))
			}
		}
		if v.number < 0 {
			return oip.Errorf(oip.Invalid, "parameter timeout is %d microseconds", v.number)
		}
		q.timeout = time.Duration(min(v.number, math.MaxInt64/1000)) * time.Microsecond
		if q.r != nil {
			q.r.SetTimeout(q.timeout)
		}
	case "sequence_id", "sequence_start", "sequence_end":
		if v != (value{}) {
			return oip.Errorf(oip.Unsupported, "sequences are not served: no model here keeps a state between requests")
		}
	case "triton_enable_empty_final_response":
		q.emptyFinal = v.flag
	}
	return nil
}

// place is where a tensor is to be found, or to be put, in a client's memory.
type place struct {
	region       string
	offset, size int64
	classes      bool
}

func (q *request) placed(p part, typ protowire.Type, to *place) error {
	key, v, err := q.entry(p, typ)
	if err != nil {
		return err
	}
	switch key {
	case "shared_memory_region":
		to.region = v.text
	case "shared_memory_offset":
		to.offset = v.number
	case "shared_memory_byte_size":
		to.size = v.number
	case "classification":
		to.classes = v.number != 0
	}
	return nil
}

func (l *place) check(name string) error {
	if l.offset < 0 || l.size < 0 {
		return oip.Errorf(oip.Invalid, "tensor %s: shared_memory_offset %d and shared_memory_byte_size %d must not be negative", oip.Quote(name), l.offset, l.size)
	}
	return nil
}

// input reads an InferInputTensor.
func (q *request) input(p part, typ protowire.Type) error {
	if err := q.started(); err != nil {
		return err
	}
	if q.given++; q.given > maxTensors {
		return oip.Errorf(oip.TooLarge, "more than %d inputs", maxTensors)
	}
	t, err := p.within(typ)
	if err != nil {
		return err
	}
	var (
		name, datatype string
		extents        [oip.MaxRank]int64
		shape          = extents[:0]
		at             place
		in             *engine.Input
		contents       *elements
	)
	for {
		num, typ, ok, err := t.field()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if contents != nil && num <= 4 {
			return oip.Errorf(oip.Invalid, "input %s has name, datatype, shape or parameters behind its contents: fields are wanted in the order of their numbers", oip.Quote(name))
		}
		switch num {
		case 1:
			name, err = q.text.read(t, typ, "the name of an input", maxName)
		case 2:
			datatype, err = q.text.read(t, typ, "the datatype of an input", maxName)
		case 3:
			shape, err = q.shape(t, typ, shape)
		case 4:
			err = q.placed(t, typ, &at)
		case 5:
			if contents == nil {
				if at.region != "" {
					return oip.Errorf(oip.Invalid, "input %s has contents and a shared memory region", oip.Quote(name))
				}
				if in, err = q.r.Input(name, datatype, shape); err != nil {
					return err
				}
				contents = &elements{name: name, datatype: in.Datatype()}
			}
			err = contents.read(t, typ, in)
		default:
			err = t.in.Skip(typ)
		}
		if err != nil {
			return err
		}
	}
	late := func() error {
		if q.raw == 0 {
			return nil
		}
		return oip.Errorf(oip.Invalid, "input %s comes behind raw_input_contents: fields are wanted in the order of their numbers", oip.Quote(name))
	}
	switch {
	case contents != nil:
		q.typed = true
		if err := late(); err != nil {
			return err
		}
		return contents.complete(in)
	case at.region != "":
		if err := at.check(name); err != nil {
			return err
		}
		if in, err = q.r.Input(name, datatype, shape); err != nil {
			return err
		}
		return in.Region(q.client(), at.region, uint64(at.offset), uint64(at.size))
	}
	if in, err = q.r.Input(name, datatype, shape); err != nil {
		return err
	}
	if err := late(); err != nil {
		return err
	}
	q.pending = append(q.pending, in)
	q.names = append(q.names, name)
	return nil
}

// shape reads extents, packed or one by one.
func (q *request) shape(p part, typ protowire.Type, shape []int64) ([]int64, error) {
	if typ == protowire.VarintType {
		v, err := p.in.Varint()
		if err != nil {
			return nil, err
		}
		return extent(shape, v)
	}
	list, err := p.within(typ)
	if err != nil {
		return nil, err
	}
	for offset(p.in) < list.end {
		v, err := p.in.Varint()
		if err != nil {
			return nil, err
		}
		if shape, err = extent(shape, v); err != nil {
			return nil, err
		}
	}
	return shape, list.whole()
}

func extent(shape []int64, v uint64) ([]int64, error) {
	if len(shape) >= oip.MaxRank {
		return nil, oip.Errorf(oip.Invalid, "a shape of more than %d extents", oip.MaxRank)
	}
	return append(shape, int64(v)), nil
}

// output reads an InferRequestedOutputTensor.
func (q *request) output(p part, typ protowire.Type) error {
	if err := q.started(); err != nil {
		return err
	}
	if q.outputs++; q.outputs > maxTensors {
		return oip.Errorf(oip.TooLarge, "more than %d outputs asked for", maxTensors)
	}
	t, err := p.within(typ)
	if err != nil {
		return err
	}
	var (
		name string
		at   place
	)
	for {
		num, typ, ok, err := t.field()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		switch num {
		case 1:
			name, err = q.text.read(t, typ, "the name of an output", maxName)
		case 2:
			err = q.placed(t, typ, &at)
		default:
			err = t.in.Skip(typ)
		}
		if err != nil {
			return err
		}
	}
	if at.classes {
		return oip.Errorf(oip.Unsupported, "output %s: classification is not served", oip.Quote(name))
	}
	out, err := q.r.Output(name)
	if err != nil || at.region == "" {
		return err
	}
	if err := at.check(name); err != nil {
		return err
	}
	return out.Region(q.client(), at.region, uint64(at.offset), uint64(at.size))
}

// rawContents reads the bytes of the next input to its place in the pool.
func (q *request) rawContents(p part, typ protowire.Type) error {
	n, err := p.length(typ)
	if err != nil {
		return err
	}
	if q.typed {
		return oip.Errorf(oip.Invalid, "an input has contents, and the request raw_input_contents: it is one or the other")
	}
	q.raw++
	if len(q.pending) == 0 {
		return oip.Errorf(oip.Invalid, "raw_input_contents %d belongs to no input: %d inputs came before it, those in shared memory have none", q.raw, q.given)
	}
	in, name := q.pending[0], q.names[len(q.names)-len(q.pending)]
	if uint64(n) != in.Size() {
		return oip.Errorf(oip.Invalid, "input %s takes %d bytes, and its raw_input_contents have %d", oip.Quote(name), in.Size(), n)
	}
	q.pending = q.pending[1:]
	return in.Fill(p.in.ReadFull)
}

// reset makes it ready for another message, keeping what was allocated.
func (q *request) reset(known map[string]string, small int) {
	*q = request{pending: slices.Delete(q.pending, 0, len(q.pending)), names: q.names[:0], begin: q.begin, client: q.client}
	q.text.known, q.text.left = known, small
}
