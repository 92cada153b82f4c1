package rpc

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// maxName is the maximum length of an id, and of the name and version of a model, in bytes.
const maxName = 1 << 10

// The fields that are decoded in place.
const (
	inputsField   = 5 // of ModelInferRequest
	rawField      = 7 // of ModelInferRequest
	contentsField = 5 // of InferInputTensor
)

// request is one ModelInferRequest, decoded while it arrives. The elements of tensors are read into memory
// of the engine. The other fields, at most maxSmall bytes, are collected and decoded by the generated code.
type request struct {
	engine *engine.Engine
	ctx    context.Context
	tenant string

	small   []byte // collected fields that are not decoded yet
	decoded int    // bytes of the decoded ones

	model, id  string
	emptyFinal bool            // the client wants a mark on the last response
	r          *engine.Request // nil until the name of the model is decoded
	pending    []pending       // inputs that wait for raw contents, in order
	inputs     int             // inputs so far
	raw        int             // raw contents so far
	typed      bool            // an input had typed contents
}

// pending is an input that waits for raw contents.
type pending struct {
	name string
	*engine.Input
}

// end releases the request.
func (q *request) end() {
	if q.r != nil {
		q.r.End()
	}
}

// read decodes the message. Errors: *oip.Error for a request that is refused; others for bytes that are
// not a message, and for a transport that ended.
func (q *request) read(in *codec.Incoming) error {
	message := part{in, math.MaxInt}
	for {
		num, typ, err := q.collect(message, inputsField, rawField)
		if err == nil {
			err = q.decode()
		}
		switch {
		case err != nil:
		case num == inputsField:
			err = q.input(message, typ)
		case num == rawField:
			err = q.rawContents(message, typ)
		case len(q.pending) > 0:
			err = oip.Errorf(oip.Invalid, "input %s has no contents: %d of the inputs have neither raw_input_contents, contents nor a shared memory region",
				oip.Quote(q.pending[0].name), len(q.pending))
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// collect adds the fields of a message to small, until the end of the message or one of the fields in place.
// It returns the number of that field; 0 at the end.
func (q *request) collect(p part, inPlace ...protowire.Number) (protowire.Number, protowire.Type, error) {
	for {
		num, typ, err := p.field()
		switch {
		case err != nil || num == 0 || slices.Contains(inPlace, num):
			return num, typ, err
		case num > rawField:
			err = p.in.Skip(typ)
		default:
			err = q.add(p, num, typ)
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// add adds a field to small.
func (q *request) add(p part, num protowire.Number, typ protowire.Type) (err error) {
	n, number := 0, uint64(0)
	if typ == protowire.VarintType {
		number, err = p.in.Varint()
	} else if n, err = p.length(typ); err == nil {
		number = uint64(n)
	}
	if err != nil {
		return err
	}
	if q.decoded+len(q.small)+n > maxSmall {
		return oip.Errorf(oip.TooLarge, "the names, shapes and parameters of a request may have %d bytes in all", maxSmall)
	}
	q.small = protowire.AppendVarint(protowire.AppendTag(q.small, num, typ), number)
	q.small = slices.Grow(q.small, n)[:len(q.small)+n]
	return p.in.ReadFull(q.small[len(q.small)-n:])
}

// unmarshal decodes the collected fields.
func (q *request) unmarshal(m proto.Message) error {
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(q.small, m); err != nil {
		return &codec.WireError{Reason: err.Error()}
	}
	q.decoded += len(q.small)
	q.small = q.small[:0]
	return nil
}

// decode decodes the fields of the message that were collected since the last call. The first call admits
// the request.
func (q *request) decode() error {
	if q.r != nil && len(q.small) == 0 {
		return nil
	}
	var m pb.ModelInferRequest
	if err := q.unmarshal(&m); err != nil {
		return err
	}
	for _, s := range []string{m.GetModelName(), m.GetModelVersion(), m.GetId()} {
		if len(s) > maxName {
			return oip.Errorf(oip.Invalid, "model_name, model_version and id may have at most %d bytes each", maxName)
		}
	}
	if m.GetId() != "" {
		q.id = m.GetId()
	}
	timeout, err := q.parameters(m.GetParameters())
	if err != nil {
		return err
	}
	switch {
	case q.r != nil && (m.GetModelName() != "" || m.GetModelVersion() != ""):
		return oip.Errorf(oip.Invalid, "model_name or model_version is after the tensors; send the fields in the order of their numbers")
	case q.r == nil && m.GetModelName() == "":
		return oip.Errorf(oip.Invalid, "the request has no model_name before its tensors")
	case q.r == nil:
		r, err := q.engine.Begin(q.ctx, q.tenant, m.GetModelName(), m.GetModelVersion())
		if err != nil {
			return err
		}
		q.r, q.model = r, m.GetModelName()
	}
	q.r.SetTimeout(timeout)
	for _, o := range m.GetOutputs() {
		if err := q.output(o); err != nil {
			return err
		}
	}
	return nil
}

// parameters applies the parameters of the request, and returns its timeout, 0 for none. Other parameters are
// ignored, as the protocol demands.
func (q *request) parameters(m map[string]*pb.InferParameter) (time.Duration, error) {
	for _, key := range []string{"sequence_id", "sequence_start", "sequence_end"} {
		if p := m[key]; integer(p) != 0 || p.GetStringParam() != "" || p.GetBoolParam() {
			return 0, oip.Errorf(oip.Unsupported, "sequences are not supported: models keep no state between requests")
		}
	}
	q.emptyFinal = q.emptyFinal || m["triton_enable_empty_final_response"].GetBoolParam()
	micros := integer(m["timeout"])
	if text := m["timeout"].GetStringParam(); text != "" {
		var err error
		if micros, err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, oip.Errorf(oip.Invalid, "parameter timeout is %s, not a number of microseconds", oip.Quote(text))
		}
	}
	if micros < 0 {
		return 0, oip.Errorf(oip.Invalid, "parameter timeout is %d microseconds", micros)
	}
	return time.Duration(min(micros, math.MaxInt64/1000)) * time.Microsecond, nil
}

// integer returns the value of a parameter that is an integer, and 0 for others.
func integer(p *pb.InferParameter) int64 {
	return p.GetInt64Param() + int64(min(p.GetUint64Param(), math.MaxInt64)) // at most one is set
}

// place returns the part of shared memory that a tensor's parameters name. region is "" for none.
func place(tensor string, m map[string]*pb.InferParameter) (region string, offset, size uint64, err error) {
	region = m["shared_memory_region"].GetStringParam()
	from, n := integer(m["shared_memory_offset"]), integer(m["shared_memory_byte_size"])
	if region != "" && (from < 0 || n < 0) {
		err = oip.Errorf(oip.Invalid, "tensor %s: shared_memory_offset %d and shared_memory_byte_size %d must not be negative", oip.Quote(tensor), from, n)
	}
	return region, uint64(from), uint64(n), err
}

// input reads an InferInputTensor.
func (q *request) input(p part, typ protowire.Type) error {
	if q.raw > 0 {
		return oip.Errorf(oip.Invalid, "an input is after raw_input_contents; send the fields in the order of their numbers")
	}
	q.inputs++
	tensor, err := p.within(typ)
	if err != nil {
		return err
	}
	num, typ, err := q.collect(tensor, contentsField)
	if err != nil {
		return err
	}
	var m pb.ModelInferRequest_InferInputTensor
	if err := q.unmarshal(&m); err != nil {
		return err
	}
	region, offset, size, err := place(m.GetName(), m.GetParameters())
	if err != nil {
		return err
	}
	in, err := q.r.Input(m.GetName(), m.GetDatatype(), m.GetShape())
	switch {
	case err != nil:
		return err
	case num == contentsField && region != "":
		return oip.Errorf(oip.Invalid, "input %s has contents and a shared memory region", oip.Quote(m.GetName()))
	case num == contentsField:
		q.typed = true
		return in.Fill(func(memory []byte) error {
			return (&elements{name: m.GetName(), datatype: in.Datatype(), memory: memory}).read(tensor, typ)
		})
	case region != "":
		return in.Region(client(q.ctx), region, offset, size)
	}
	q.pending = append(q.pending, pending{m.GetName(), in})
	return nil
}

// output requests an output.
func (q *request) output(m *pb.ModelInferRequest_InferRequestedOutputTensor) error {
	if integer(m.GetParameters()["classification"]) != 0 {
		return oip.Errorf(oip.Unsupported, "output %s: classification is not supported; request the tensor", oip.Quote(m.GetName()))
	}
	region, offset, size, err := place(m.GetName(), m.GetParameters())
	if err != nil {
		return err
	}
	out, err := q.r.Output(m.GetName())
	if err != nil || region == "" {
		return err
	}
	return out.Region(client(q.ctx), region, offset, size)
}

// rawContents reads the elements of the next pending input into its memory.
func (q *request) rawContents(p part, typ protowire.Type) error {
	n, err := p.length(typ)
	if err != nil {
		return err
	}
	if q.raw++; q.typed {
		return oip.Errorf(oip.Invalid, "an input has contents, and the request raw_input_contents: it is one or the other")
	}
	if len(q.pending) == 0 {
		return oip.Errorf(oip.Invalid, "raw_input_contents %d belongs to no input: %d inputs are before it, and those in shared memory have none", q.raw, q.inputs)
	}
	in := q.pending[0]
	if uint64(n) != in.Size() {
		return oip.Errorf(oip.Invalid, "input %s takes %d bytes, and its raw_input_contents have %d", oip.Quote(in.name), in.Size(), n)
	}
	q.pending = q.pending[1:]
	return in.Fill(p.in.ReadFull)
}
