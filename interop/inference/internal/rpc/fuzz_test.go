package rpc

import (
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight/codec"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// receivable adapts a function to the codec's interface for incoming messages.
type receivable func(*codec.Incoming) error

func (f receivable) Receive(in *codec.Incoming) error { return f(in) }

// triple returns a model that copies inputs of three datatypes.
func triple() *enginetest.Model {
	m := every("triple")
	m.Meta.Inputs = []oip.Tensor{{Name: "a", Datatype: oip.INT16, Shape: []int64{-1}}, {Name: "b", Datatype: oip.BOOL, Shape: []int64{-1, -1}}, {Name: "c", Datatype: oip.FP64, Shape: []int64{}}}
	m.Meta.Outputs = m.Meta.Inputs
	return m
}

// take decodes a request from chunks of data, runs it, and returns the bytes of each output.
func take(e *engine.Engine, data []byte, chunk int) (*request, map[string][]byte, error) {
	q := &request{engine: e, ctx: context.Background()}
	defer q.end()
	var pieces mem.BufferSlice
	for rest := data; len(rest) > 0; {
		n := min(chunk, len(rest))
		pieces = append(pieces, mem.SliceBuffer(rest[:n]))
		rest = rest[n:]
	}
	if err := codec.New(0).Unmarshal(pieces, receivable(q.read)); err != nil {
		return q, nil, err
	}
	results, err := q.r.Run()
	if err != nil {
		return q, nil, err
	}
	out := map[string][]byte{}
	for i := range results {
		out[results[i].Name] = append([]byte{}, results[i].Bytes...)
	}
	return q, out, nil
}

// oracle reports whether a request that Protocol Buffers decoded is valid, and returns the bytes of
// its inputs.
func oracle(e *engine.Engine, q *pb.ModelInferRequest) (map[string][]byte, bool) {
	m, err := e.Model(q.GetModelName(), q.GetModelVersion())
	if err != nil {
		return nil, false
	}
	for key, p := range q.GetParameters() {
		if key == "timeout" && (p.GetStringParam() != "" || p.GetInt64Param() < 0 || p.GetInt64Param() > 0 || p.GetUint64Param() > 0) {
			return nil, false // the timeout is invalid or can expire
		}
		if strings.HasPrefix(key, "sequence_") {
			return nil, false
		}
	}
	if proto.Size(q) > maxSmall || len(q.GetParameters()) > 3 {
		return nil, false // close to a limit that other tests cover
	}
	in, raw, typed := map[string][]byte{}, q.GetRawInputContents(), false
	for _, t := range q.GetInputs() {
		var meta *oip.Tensor
		for i, w := range m.Meta().Inputs {
			if w.Name == t.GetName() {
				meta = &m.Meta().Inputs[i]
			}
		}
		if meta == nil || in[meta.Name] != nil || t.GetDatatype() != meta.Datatype.String() || !meta.Fits(t.GetShape()) || len(t.GetParameters()) > 0 {
			return nil, false
		}
		size, err := oip.Bytes(meta.Datatype, t.GetShape())
		if err != nil || size > 1<<20 {
			return nil, false
		}
		var data []byte
		switch {
		case t.GetContents() != nil:
			typed = true
			var ok bool
			if data, ok = plain(t.GetContents(), meta.Datatype); !ok || fields(t.GetContents()) > 1 {
				return nil, false
			}
		case size == 0 && len(q.GetRawInputContents()) == 0: // nothing needs to be sent
		case len(raw) == 0:
			return nil, false
		default:
			data, raw = raw[0], raw[1:]
		}
		if uint64(len(data)) != size {
			return nil, false
		}
		in[meta.Name] = append([]byte{}, data...)
	}
	if len(raw) > 0 || typed && len(q.GetRawInputContents()) > 0 || len(in) != len(m.Meta().Inputs) {
		return nil, false
	}
	wanted := map[string]bool{}
	for _, o := range q.GetOutputs() {
		known := false
		for _, w := range m.Meta().Outputs {
			known = known || w.Name == o.GetName()
		}
		if !known || wanted[o.GetName()] || len(o.GetParameters()) > 0 {
			return nil, false
		}
		wanted[o.GetName()] = true
	}
	return in, true
}

// plain encodes typed contents as raw contents.
func plain(c *pb.InferTensorContents, d oip.Datatype) (out []byte, ok bool) {
	switch d {
	case oip.INT16:
		for _, v := range c.GetIntContents() {
			if v != int32(int16(v)) {
				return nil, false
			}
			out = binary.NativeEndian.AppendUint16(out, uint16(v))
		}
	case oip.BOOL:
		for _, v := range c.GetBoolContents() {
			if v {
				out = append(out, 1)
			} else {
				out = append(out, 0)
			}
		}
	case oip.FP32:
		for _, v := range c.GetFp32Contents() {
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(v))
		}
	case oip.FP64:
		for _, v := range c.GetFp64Contents() {
			out = binary.NativeEndian.AppendUint64(out, math.Float64bits(v))
		}
	default:
		return nil, false
	}
	return out, true
}

// TestDecodingAllocatesLittle checks that the memory of the fields of a request is bounded.
func TestDecodingAllocatesLittle(t *testing.T) {
	e := enginetest.New(t, engine.Options{}, triple())
	for what, field := range map[string]string{"parameters": "\x22\x04\x0a\x02ab", "outputs": "\x32\x00"} {
		q := &request{engine: e, ctx: context.Background()}
		pieces := mem.BufferSlice{mem.SliceBuffer([]byte("\x0a\x06triple" + strings.Repeat(field, 1<<20)))}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := codec.New(0).Unmarshal(pieces, receivable(q.read))
		runtime.ReadMemStats(&after)
		q.end()
		require.ErrorContains(t, err, "may have 65536 bytes in all", what)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), what)
	}
}

// TestRefusalBeforeContents checks that a request for an unknown model is refused when its raw contents begin to
// arrive, and that all other fields are before them.
func TestRefusalBeforeContents(t *testing.T) {
	e := enginetest.New(t, engine.Options{}, triple())
	field := func(num protowire.Number, text string) string {
		return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), text))
	}
	for what, c := range map[string]struct {
		data string
		kind oip.Kind
		err  string
	}{
		"unknown model":    {field(1, "none") + "\x3a", oip.NotFound, "none"}, // the tag of raw contents
		"no model":         {"\x3a", oip.Invalid, "no model_name before"},
		"field after raw":  {field(1, "triple") + field(5, field(1, "a")+field(2, "INT16")+"\x18\x00") + field(7, "") + field(3, "id"), oip.Invalid, "is after raw_input_contents"},
		"large parameters": {field(1, "triple") + field(4, strings.Repeat("x", maxSmall)), oip.TooLarge, "65536 bytes in all"},
	} {
		_, _, err := take(e, []byte(c.data), len(c.data))
		require.Equal(t, c.kind, oip.As(err).Kind, "%s: %v", what, err)
		require.ErrorContains(t, err, c.err, what)
	}
}

// FuzzRequest compares the reader of requests with Protocol Buffers: each request that is served
// must be a valid message with the same inputs, and each valid message in the usual order must be
// served.
func FuzzRequest(f *testing.F) {
	e := enginetest.New(f, engine.Options{Memory: engine.Pool{Limit: 64 << 20}}, enginetest.Identity(), triple())
	seeds := []*pb.ModelInferRequest{identity("identity", 0), identity("identity", 3), identity("none", 1),
		{ModelName: "triple", ModelVersion: "1", Id: "é", Inputs: []*pb.ModelInferRequest_InferInputTensor{
			{Name: "c", Datatype: "FP64", Contents: &pb.InferTensorContents{Fp64Contents: []float64{1.5}}},
			{Name: "a", Datatype: "INT16", Shape: []int64{3}, Contents: &pb.InferTensorContents{IntContents: []int32{1, -2, 3}}},
			{Name: "b", Datatype: "BOOL", Shape: []int64{1, 2}, Contents: &pb.InferTensorContents{BoolContents: []bool{true, false}}}},
			Outputs: []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "a"}}},
		{ModelName: "triple", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "c", Datatype: "FP64"}, {Name: "a", Datatype: "INT16", Shape: []int64{0}}, {Name: "b", Datatype: "BOOL", Shape: []int64{0, 2}}},
			RawInputContents: [][]byte{make([]byte, 8), {}, {}}},
		{ModelName: "identity", Parameters: map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 1e9}},
			"x": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 1}}, "s": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "1"}}}},
	}
	for _, q := range seeds {
		data := testenv.Must(proto.Marshal(q))(f)
		f.Add(data, uint8(3))
		f.Add(append(data, 0x42, 1, 7), uint8(200)) // an unknown field
	}
	// Unpacked elements; raw contents before their input; the model name after the tensors.
	one := protowire.AppendVarint([]byte{0x10}, 5)
	input := protowire.AppendBytes(append([]byte("\x0a\x01a\x12\x05INT16\x18\x02"), 0x2a), append(one, one...))
	f.Add(append(append([]byte("\x0a\x06triple"), 0x2a, byte(len(input))), input...), uint8(1))
	f.Add([]byte("\x0a\x08identity\x3a\x04abcd\x2a\x0b\x0a\x01x\x12\x04FP32\x18\x01"), uint8(9))
	f.Add([]byte("\x0a\x08identity\x2a\x0c\x0a\x01x\x12\x04FP32\x1a\x01\x00"), uint8(40)) // no elements, and no contents
	f.Add([]byte("\x2a\x0b\x0a\x01x\x12\x04FP32\x18\x01\x0a\x08identity\x3a\x04abcd"), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, chunk uint8) {
		_, got, err := take(e, data, int(chunk)+1)
		q := new(pb.ModelInferRequest)
		perr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, q) // also known fields of another wire type
		if err == nil {
			require.NoError(t, perr)
		}
		if perr != nil {
			return
		}
		if err == nil {
			q.Parameters = nil // the timeout did not expire
			in, sensible := oracle(e, q)
			require.True(t, sensible, "served: %v", q)
			m := testenv.Must(e.Model(q.GetModelName(), ""))(t)
			for i, out := range m.Meta().Outputs { // the n-th is a copy of the n-th input
				if data, asked := got[out.Name]; asked {
					require.Equal(t, in[m.Meta().Inputs[i].Name], data, out.Name)
				}
			}
			if n := len(q.GetOutputs()); n > 0 {
				require.Len(t, got, n)
			}
			return
		}
		usual, merr := proto.MarshalOptions{Deterministic: true}.Marshal(q)
		require.NoError(t, merr)
		if _, sensible := oracle(e, q); sensible && string(usual) == string(data) {
			t.Fatalf("refused: %v: %v", err, q)
		}
	})
}

// FuzzResponse checks that Protocol Buffers decodes the encoded responses to the same values.
func FuzzResponse(f *testing.F) {
	e := enginetest.New(f, engine.Options{}, enginetest.Identity())
	f.Add("id", uint16(0), false, false)
	f.Add("", uint16(1), true, true)
	f.Add("é\x00", uint16(inlined/4+1), true, false)
	f.Fuzz(func(t *testing.T, id string, n uint16, stream, final bool) {
		q := identity("identity", int(n))
		data := testenv.Must(proto.Marshal(q))(t)
		r := &request{engine: e, ctx: context.Background()}
		defer r.end()
		require.NoError(t, codec.New(0).Unmarshal(mem.BufferSlice{mem.SliceBuffer(data)}, receivable(r.read)))
		results := testenv.Must(r.r.Run())(t)
		r.id, r.emptyFinal = id, final
		out, err := newResponse(r, results, stream, new(codec.Leases)).Buffers()
		if err != nil {
			require.ErrorContains(t, err, "UTF-8")
			return
		}
		wire := out.Materialize()
		out.Free()
		a := new(pb.ModelInferResponse)
		if stream {
			s := new(pb.ModelStreamInferResponse)
			if err = proto.Unmarshal(wire, s); err == nil {
				a = s.GetInferResponse()
			}
		} else {
			err = proto.Unmarshal(wire, a)
		}
		require.NoError(t, err)
		q.Id = id
		require1(t, q, a)
		require.Equal(t, stream && final, a.GetParameters()["triton_final_response"].GetBoolParam())
	})
}
