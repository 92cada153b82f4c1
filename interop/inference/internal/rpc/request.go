package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// rawField is the number of raw_input_contents in a ModelInferRequest.
const rawField = 7

// request is one ModelInferRequest, decoded while it arrives. The fields before the raw contents are collected,
// decoded by the generated code, and admit the request. Raw contents are read into memory of the engine.
type request struct {
	engine *engine.Engine
	ctx    context.Context

	fields []byte // collected; at most maxSmall

	id         string
	emptyFinal bool            // the client wants a mark on the last response
	r          *engine.Request // nil until the request is admitted
	declared   bool            // all fields before the raw contents are decoded
	pending    []*engine.Input // inputs that wait for raw contents, in order
	raw        int             // raw contents so far
	typed      bool            // an input had typed contents
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
	for {
		num, typ, err := in.Field()
		switch {
		case errors.Is(err, io.EOF):
			return q.complete()
		case err != nil:
		case num == rawField:
			err = q.rawContents(in, typ)
		case num > rawField:
			err = in.Skip(typ)
		default:
			err = q.collect(in, num, typ)
		}
		if err != nil {
			return err
		}
	}
}

// collect reads a field before the raw contents.
func (q *request) collect(in *codec.Incoming, num protowire.Number, typ protowire.Type) error {
	if q.declared {
		return oip.Errorf(oip.Invalid, "field %d of the request is after raw_input_contents; send the fields in the order of their numbers", num)
	}
	n, err := in.Length(typ)
	if err != nil {
		return err
	}
	if len(q.fields)+n > maxSmall {
		return oip.Errorf(oip.TooLarge, "the fields of a request without raw_input_contents may have %d bytes in all", maxSmall)
	}
	value := make([]byte, n)
	if err := in.ReadFull(value); err != nil {
		return err
	}
	q.fields = protowire.AppendBytes(protowire.AppendTag(q.fields, num, typ), value)
	return nil
}

// complete decodes the fields, and checks that each input has contents.
func (q *request) complete() error {
	err := q.declare()
	for err == nil && q.raw == 0 && len(q.pending) > 0 && q.pending[0].Size() == 0 { // nothing needs to be sent
		err = q.pending[0].Fill(func([]byte) error { return nil })
		q.pending = q.pending[1:]
	}
	if err == nil && len(q.pending) > 0 {
		err = oip.Errorf(oip.Invalid, "input %s has no contents: %d of the inputs have neither raw_input_contents, contents nor a shared memory region",
			oip.Quote(q.pending[0].Name()), len(q.pending))
	}
	return err
}

// declare decodes the collected fields, admits the request, declares its inputs and outputs, and converts typed
// contents. Further calls do nothing.
func (q *request) declare() error {
	if q.declared {
		return nil
	}
	q.declared = true
	m := new(pb.ModelInferRequest)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(q.fields, m); err != nil {
		return &codec.WireError{Reason: err.Error()}
	}
	q.fields, q.id = nil, m.GetId()
	timeout, err := q.parameters(m.GetParameters())
	if err != nil {
		return err
	}
	if m.GetModelName() == "" {
		return oip.Errorf(oip.Invalid, "the request has no model_name before its raw_input_contents")
	}
	if q.r, err = q.engine.Begin(q.ctx, m.GetModelName(), m.GetModelVersion()); err != nil {
		return err
	}
	q.r.SetTimeout(timeout)
	if q.r.Model().Definition().Request {
		q.r.Describe(q.id, forModel(m.GetParameters()))
	}
	for _, o := range m.GetOutputs() {
		if err := q.output(o); err != nil {
			return err
		}
	}
	inputs := make([]*engine.Input, len(m.GetInputs()))
	for i, t := range m.GetInputs() {
		if inputs[i], err = q.input(t); err != nil {
			return err
		}
	}
	for i, t := range m.GetInputs() { // after all inputs are known, which get memory at once
		if t.GetContents() == nil {
			continue
		}
		in := inputs[i]
		err := in.Fill(func(memory []byte) error { return write(memory, t.GetName(), t.GetContents(), in.Datatype()) })
		if err != nil {
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
	q.emptyFinal = m["triton_enable_empty_final_response"].GetBoolParam()
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

// forModel returns the values of parameters.
func forModel(m map[string]*pb.InferParameter) map[string]any {
	all := map[string]any{}
	for name, p := range m {
		switch v := p.GetParameterChoice().(type) {
		case *pb.InferParameter_BoolParam:
			all[name] = v.BoolParam
		case *pb.InferParameter_Int64Param:
			all[name] = v.Int64Param
		case *pb.InferParameter_Uint64Param:
			all[name] = v.Uint64Param
		case *pb.InferParameter_DoubleParam:
			all[name] = v.DoubleParam
		case *pb.InferParameter_StringParam:
			all[name] = v.StringParam
		}
	}
	return all
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

// input declares an input.
func (q *request) input(m *pb.ModelInferRequest_InferInputTensor) (*engine.Input, error) {
	region, offset, size, err := place(m.GetName(), m.GetParameters())
	if err != nil {
		return nil, err
	}
	in, err := q.r.Input(m.GetName(), m.GetDatatype(), m.GetShape())
	switch {
	case err != nil:
		return nil, err
	case m.GetContents() != nil && region != "":
		return nil, oip.Errorf(oip.Invalid, "input %s has contents and a shared memory region", oip.Quote(m.GetName()))
	case m.GetContents() != nil:
		q.typed = true
	case region != "":
		return in, in.Region(linkOf(q.ctx).client, region, offset, size)
	default:
		q.pending = append(q.pending, in)
	}
	return in, nil
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
	return out.Region(linkOf(q.ctx).client, region, offset, size)
}

// rawContents reads the elements of the next pending input into its memory.
func (q *request) rawContents(from *codec.Incoming, typ protowire.Type) error {
	if err := q.declare(); err != nil {
		return err
	}
	n, err := from.Length(typ)
	if err != nil {
		return err
	}
	if q.raw++; q.typed {
		return oip.Errorf(oip.Invalid, "an input has contents, and the request raw_input_contents: it is one or the other")
	}
	if len(q.pending) == 0 {
		return oip.Errorf(oip.Invalid, "raw_input_contents %d belongs to no input; inputs in shared memory have none", q.raw)
	}
	in := q.pending[0]
	if uint64(n) != in.Size() {
		return oip.Errorf(oip.Invalid, "input %s takes %d bytes, and its raw_input_contents have %d", oip.Quote(in.Name()), in.Size(), n)
	}
	q.pending = q.pending[1:]
	return in.Fill(from.ReadFull)
}

// typed returns the elements of a datatype in the typed contents of an input, as a slice of numbers or bools. Errors:
// Invalid for a datatype without a field in contents, and for numbers that it cannot have.
func typed(c *pb.InferTensorContents, d oip.Datatype) (elements any, err error) {
	switch d {
	case oip.BOOL:
		return c.GetBoolContents(), nil
	case oip.INT8:
		return narrow[int8](c.GetIntContents(), d)
	case oip.INT16:
		return narrow[int16](c.GetIntContents(), d)
	case oip.INT32:
		return c.GetIntContents(), nil
	case oip.INT64:
		return c.GetInt64Contents(), nil
	case oip.UINT8:
		return narrow[uint8](c.GetUintContents(), d)
	case oip.UINT16:
		return narrow[uint16](c.GetUintContents(), d)
	case oip.UINT32:
		return c.GetUintContents(), nil
	case oip.UINT64:
		return c.GetUint64Contents(), nil
	case oip.FP32:
		return c.GetFp32Contents(), nil
	case oip.FP64:
		return c.GetFp64Contents(), nil
	}
	return nil, oip.Errorf(oip.Invalid, "elements of %s have no field in contents; send raw_input_contents", d)
}

// fields returns the number of fields of typed contents that have elements.
func fields(c *pb.InferTensorContents) (n int) {
	c.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool { n++; return true })
	return n
}

// narrow converts numbers to a smaller type.
func narrow[T int8 | int16 | uint8 | uint16, V int32 | uint32](values []V, d oip.Datatype) ([]T, error) {
	out := make([]T, len(values))
	for i, v := range values {
		if out[i] = T(v); V(out[i]) != v {
			return nil, oip.Errorf(oip.Invalid, "%d is no %s", v, d)
		}
	}
	return out, nil
}

// write writes the typed contents of an input to its memory.
func write(memory []byte, name string, c *pb.InferTensorContents, d oip.Datatype) error {
	elements, err := typed(c, d)
	if used := fields(c); err == nil && used > 1 {
		err = fmt.Errorf("its contents have elements in %d fields, and one belongs to a datatype", used)
	}
	if err != nil {
		return oip.Errorf(oip.Invalid, "input %s: %s", oip.Quote(name), err)
	}
	if n := binary.Size(elements); n != len(memory) {
		return oip.Errorf(oip.Invalid, "input %s takes %d elements; the field for %s in its contents has %d",
			oip.Quote(name), len(memory)/d.Size(), d, n/d.Size())
	}
	_, err = binary.Encode(memory, binary.NativeEndian, elements)
	return err
}
