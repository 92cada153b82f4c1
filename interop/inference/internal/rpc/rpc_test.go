package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/usmarray"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

func TestMain(m *testing.M) { memtest.Main(m) }

// testbed is a server with an engine, and a client that uses the generated gRPC messages.
type testbed struct {
	engine *engine.Engine
	runner *enginetest.Runner
	pool   *memmgr.Pool
	server *Server
	conn   *grpc.ClientConn
	at     string
}

func newTestbed(t testing.TB, eo engine.Options, change func(*limits), models ...*enginetest.Model) *testbed {
	t.Helper()
	b := &testbed{runner: enginetest.NewRunner(models...)}
	from := memmgr.Host()
	if eo.Memory.Limit != 0 {
		from = memmgr.NewLimit(from, eo.Memory.Limit)
	}
	b.pool = memmgr.NewPool(from, memmgr.WithName("tensors"))
	eo.Memory.Pool = b.pool
	b.engine = enginetest.With(t, b.runner, eo, models...)
	most := defaults
	if change != nil {
		change(&most)
	}
	b.server = newServer(b.engine, nil, most)
	l := testenv.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	b.at = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = b.server.Serve(l) })
	b.conn = b.dial(t)
	t.Cleanup(func() {
		require.NoError(t, b.conn.Close())
		b.server.Close()
		serving.Wait()
		b.quiet(t)
	})
	return b
}

// quiet waits until no call is in flight and no gRPC buffer is in use.
func (b *testbed) quiet(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		pieces, _ := codec.Outstanding()
		return pieces == 0 && b.engine.Stats().Calls == 0 && b.engine.Stats().Requests == 0
	}, 2*time.Minute, time.Millisecond)
}

func (b *testbed) dial(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn := testenv.Must(grpc.NewClient(b.at, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30))}, options...)...))(t)
	return conn
}

// ask makes a unary call.
func ask[A any](t testing.TB, b *testbed, name string, q any) (*A, error) {
	t.Helper()
	a := new(A)
	err := b.conn.Invoke(t.Context(), "/"+serviceName+"/"+name, q, a, grpc.WaitForReady(true))
	return a, err
}

func (b *testbed) infer(ctx context.Context, q *pb.ModelInferRequest, options ...grpc.CallOption) (*pb.ModelInferResponse, error) {
	a := new(pb.ModelInferResponse)
	err := b.conn.Invoke(ctx, inferMethod, q, a, append(options, grpc.WaitForReady(true))...)
	return a, err
}

func floats(values ...float32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// identity returns a request with n floats.
func identity(model string, n int) *pb.ModelInferRequest {
	raw := make([]byte, 4*n)
	for i := range raw {
		raw[i] = byte(i * 7 >> 2)
	}
	return &pb.ModelInferRequest{ModelName: model, Id: "an id",
		Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{int64(n)}}},
		RawInputContents: [][]byte{raw}}
}

func require1(t testing.TB, q *pb.ModelInferRequest, a *pb.ModelInferResponse) {
	t.Helper()
	require.Equal(t, q.GetModelName(), a.GetModelName())
	require.Equal(t, "1", a.GetModelVersion())
	require.Equal(t, q.GetId(), a.GetId())
	require.Len(t, a.GetOutputs(), 1)
	require.Equal(t, "y", a.GetOutputs()[0].GetName())
	require.Equal(t, "FP32", a.GetOutputs()[0].GetDatatype())
	require.Equal(t, q.GetInputs()[0].GetShape(), a.GetOutputs()[0].GetShape())
	require.Equal(t, q.GetRawInputContents(), a.GetRawOutputContents())
}

func code(t testing.TB, want codes.Code, err error, words ...string) {
	t.Helper()
	require.Equal(t, want, status.Code(err), "%v", err)
	for _, w := range words {
		require.ErrorContains(t, err, w)
	}
}

func TestInfer(t *testing.T) {
	b := newTestbed(t, engine.Options{}, nil, enginetest.Identity(), enginetest.Sum())
	for _, n := range []int{0, 1, inlined / 4, inlined/4 + 1, leased/4 - 1, leased / 4, leased/4 + 1, 5 << 20} {
		q := identity("identity", n)
		a := testenv.Must(b.infer(t.Context(), q))(t)
		require1(t, q, a)
		a = testenv.Must(b.infer(t.Context(), q, grpc.UseCompressor(gzip.Name)))(t)
		require1(t, q, a)
	}
	// Two inputs with typed contents and two outputs, in another order than in the model.
	q := &pb.ModelInferRequest{ModelName: "sum", ModelVersion: "1",
		Inputs: []*pb.ModelInferRequest_InferInputTensor{
			{Name: "b", Datatype: "INT64", Shape: []int64{1, 2}, Contents: &pb.InferTensorContents{Int64Contents: []int64{3, -4}}},
			{Name: "a", Datatype: "INT64", Shape: []int64{1, 2}, Contents: &pb.InferTensorContents{Int64Contents: []int64{10, 20}}}},
		Outputs: []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "total"}, {Name: "sum"}}}
	a := testenv.Must(b.infer(t.Context(), q))(t)
	require.Equal(t, "total", a.GetOutputs()[0].GetName())
	require.Empty(t, a.GetOutputs()[0].GetShape())
	require.Equal(t, 29.0, math.Float64frombits(binary.LittleEndian.Uint64(a.GetRawOutputContents()[0])))
	require.Equal(t, []int64{1, 2}, a.GetOutputs()[1].GetShape())
	require.EqualValues(t, 13, binary.LittleEndian.Uint64(a.GetRawOutputContents()[1]))
}

// TestMessagesAreDecodedOnArrival checks that messages are decoded while they arrive.
func TestMessagesAreDecodedOnArrival(t *testing.T) {
	b := newTestbed(t, engine.Options{Memory: engine.Pool{Limit: 8 << 20}, Timeout: 5 * time.Minute}, nil, enginetest.Identity())
	require.NoError(t, testenv.ErrorOf(b.infer(t.Context(), identity("identity", 1<<19), grpc.UseCompressor(gzip.Name))))
	_, err := b.infer(t.Context(), identity("identity", 3<<20))
	code(t, codes.InvalidArgument, err, "all tensors together")
	_, err = b.infer(t.Context(), identity("identity", 7<<18)) // the input and the output do not fit into memory together
	code(t, codes.InvalidArgument, err, "take 14680064 bytes")
	var trailer metadata.MD
	holder := testenv.Must(b.engine.Begin(t.Context(), "identity", ""))(t)
	defer holder.End()
	in := testenv.Must(holder.Input("x", "FP32", []int64{5 << 17}))(t)
	require.NoError(t, in.Fill(func([]byte) error { return nil }))
	q := identity("identity", 5<<17)
	q.Parameters = map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 200_000}}}
	_, err = b.infer(t.Context(), q, grpc.Trailer(&trailer))
	code(t, codes.ResourceExhausted, err)
	require.NotEmpty(t, trailer["grpc-retry-pushback-ms"])
}

// every returns a model that copies one input of each datatype, except some, to an output.
func every(name string, except ...oip.Datatype) *enginetest.Model {
	m := enginetest.Identity()
	m.Meta = oip.Model{Name: name, Versions: []string{"1"}, Platform: "go"}
	for d := oip.BOOL; d < oip.BYTES; d++ {
		if slices.Contains(except, d) {
			continue
		}
		m.Meta.Inputs = append(m.Meta.Inputs, oip.Tensor{Name: d.String(), Datatype: d, Shape: []int64{-1}})
		m.Meta.Outputs = append(m.Meta.Outputs, oip.Tensor{Name: d.String(), Datatype: d, Shape: []int64{-1}})
	}
	m.Infer = func(_ context.Context, in, out []*usmarray.Array) ([]*usmarray.Array, error) {
		for i := range in {
			if err := out[i].CopyFrom(in[i]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	return m
}

// TestZeroSize checks that a tensor without elements is served without contents, with empty ones, and with raw contents.
func TestZeroSize(t *testing.T) {
	b := newTestbed(t, engine.Options{}, nil, enginetest.Identity())
	for _, q := range []*pb.ModelInferRequest{
		{Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{0}}}},
		{Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{0}, Contents: &pb.InferTensorContents{}}}},
		{Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{0}}}, RawInputContents: [][]byte{{}}},
	} {
		q.ModelName = "identity"
		a, err := b.infer(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, []int64{0}, a.GetOutputs()[0].GetShape())
	}
}

// TestContents checks that typed contents are converted to the datatype of the tensor.
func TestContents(t *testing.T) {
	type c = pb.InferTensorContents
	cases := []struct {
		d    oip.Datatype
		c    *c
		want []byte
	}{
		{oip.BOOL, &c{BoolContents: []bool{true, false}}, []byte{1, 0}},
		{oip.INT8, &c{IntContents: []int32{-128, 127}}, []byte{0x80, 0x7f}},
		{oip.INT16, &c{IntContents: []int32{-2, 300}}, []byte{0xfe, 0xff, 0x2c, 1}},
		{oip.INT32, &c{IntContents: []int32{-1, 1 << 30}}, []byte{255, 255, 255, 255, 0, 0, 0, 0x40}},
		{oip.INT64, &c{Int64Contents: []int64{math.MinInt64, 1}}, []byte{0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0, 0, 0, 0, 0, 0}},
		{oip.UINT8, &c{UintContents: []uint32{255, 0}}, []byte{255, 0}},
		{oip.UINT16, &c{UintContents: []uint32{65535, 1}}, []byte{255, 255, 1, 0}},
		{oip.UINT32, &c{UintContents: []uint32{math.MaxUint32, 1}}, []byte{255, 255, 255, 255, 1, 0, 0, 0}},
		{oip.UINT64, &c{Uint64Contents: []uint64{math.MaxUint64, 1}}, []byte{255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 0, 0, 0, 0}},
		{oip.FP32, &c{Fp32Contents: []float32{1, -2}}, floats(1, -2)},
		{oip.FP64, &c{Fp64Contents: []float64{1, 0}}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0}},
	}
	q := &pb.ModelInferRequest{ModelName: "every"}
	for _, c := range cases {
		q.Outputs = append(q.Outputs, &pb.ModelInferRequest_InferRequestedOutputTensor{Name: c.d.String()})
		q.Inputs = append(q.Inputs, &pb.ModelInferRequest_InferInputTensor{Name: c.d.String(), Datatype: c.d.String(), Shape: []int64{2}, Contents: c.c})
	}
	b := newTestbed(t, engine.Options{}, nil, every("every", oip.FP16, oip.BF16), every("every2"))
	a := testenv.Must(b.infer(t.Context(), q))(t)
	for i, c := range cases {
		require.Equal(t, c.want, a.GetRawOutputContents()[i], c.d)
	}
	for _, c := range []struct {
		d     string
		c     *pb.InferTensorContents
		words string
	}{
		{"INT8", &pb.InferTensorContents{IntContents: []int32{128, 0}}, "128 is no INT8"},
		{"INT8", &pb.InferTensorContents{IntContents: []int32{0, -129}}, "-129 is no INT8"},
		{"UINT16", &pb.InferTensorContents{UintContents: []uint32{65536, 0}}, "65536 is no UINT16"},
		{"INT64", &pb.InferTensorContents{Int64Contents: []int64{1}}, "takes 2 elements; the field for INT64 in its contents has 1"},
		{"INT64", &pb.InferTensorContents{Int64Contents: []int64{1, 2, 3}}, "has 3"},
		{"FP32", &pb.InferTensorContents{Fp64Contents: []float64{1, 2}}, "the field for FP32 in its contents has 0"},
		{"BOOL", &pb.InferTensorContents{BoolContents: make([]bool, 1<<16)}, "65536 bytes in all"},
		{"FP16", &pb.InferTensorContents{Fp32Contents: []float32{1, 2}}, "send raw_input_contents"},
		{"FP32", &pb.InferTensorContents{Fp32Contents: []float32{1, 2}, Fp64Contents: []float64{1}}, "elements in 2 fields"},
		{"INT32", &pb.InferTensorContents{IntContents: []int32{1, 2}, BytesContents: [][]byte{{1}}, BoolContents: []bool{true}}, "elements in 3 fields"},
		{"BF16", &pb.InferTensorContents{BytesContents: [][]byte{{1}}}, "send raw_input_contents"},
	} {
		one := &pb.ModelInferRequest{ModelName: "every2",
			Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: c.d, Datatype: c.d, Shape: []int64{2}, Contents: c.c}}}
		_, err := b.infer(t.Context(), one)
		code(t, codes.InvalidArgument, err, c.words)
	}
}

// TestRefused checks the errors of invalid requests (TestRefusals of the engine has those of tensors), and that the server continues to serve
// requests.
func TestRefused(t *testing.T) {
	b := newTestbed(t, engine.Options{}, func(l *limits) { l.message = 1 << 20 }, enginetest.Identity(), enginetest.Sum(),
		enginetest.Failing(errors.New("open /etc/secret: no such file")))
	type q = pb.ModelInferRequest
	type in = pb.ModelInferRequest_InferInputTensor
	type out = pb.ModelInferRequest_InferRequestedOutputTensor
	x := func(n int64) []*in { return []*in{{Name: "x", Datatype: "FP32", Shape: []int64{n}}} }
	text := func(s string) map[string]*pb.InferParameter {
		return map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: s}}}
	}
	number := func(key string, n int64) map[string]*pb.InferParameter {
		return map[string]*pb.InferParameter{"shared_memory_region": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "r"}},
			key: {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: n}}}
	}
	for _, c := range []struct {
		name  string
		q     *q
		code  codes.Code
		words string
	}{
		{"nothing", &q{}, codes.InvalidArgument, "no model_name"},
		{"no model", &q{ModelName: "none"}, codes.NotFound, `"none"`},
		{"no version", &q{ModelName: "identity", ModelVersion: "2"}, codes.NotFound, `no version "2"`},
		{"no inputs", &q{ModelName: "identity"}, codes.InvalidArgument, "input x"},
		{"no contents", &q{ModelName: "identity", Inputs: x(1)}, codes.InvalidArgument, `input "x" has no contents`},
		{"too little", &q{ModelName: "identity", Inputs: x(2), RawInputContents: [][]byte{floats(1)}}, codes.InvalidArgument, "takes 8 bytes, and its raw_input_contents have 4"},
		{"too many", &q{ModelName: "identity", Inputs: x(1), RawInputContents: [][]byte{floats(1), {}}}, codes.InvalidArgument, "raw_input_contents 2 belongs to no input"},
		{"raw alone", &q{ModelName: "identity", RawInputContents: [][]byte{{1}}}, codes.InvalidArgument, "raw_input_contents 1 belongs to no input"},
		{"both", &q{ModelName: "identity", Inputs: []*in{{Name: "x", Datatype: "FP32", Shape: []int64{1}, Contents: &pb.InferTensorContents{Fp32Contents: []float32{1}}}},
			RawInputContents: [][]byte{floats(1)}}, codes.InvalidArgument, "one or the other"},
		{"unknown input", &q{ModelName: "identity", Inputs: []*in{{Name: "z"}}}, codes.InvalidArgument, "no input"},
		{"unknown output", &q{ModelName: "identity", Inputs: x(1), Outputs: []*out{{Name: "z"}}, RawInputContents: [][]byte{floats(1)}}, codes.InvalidArgument, "no output"},
		{"not UTF-8", &q{ModelName: "identity", Id: "\xff"}, codes.Internal, "UTF-8"}, // of the client's own library
		{"timeout", &q{ModelName: "identity", Parameters: text("soon")}, codes.InvalidArgument, "timeout"},
		{"negative timeout", &q{ModelName: "identity", Parameters: text("-1")}, codes.InvalidArgument, "timeout"},
		{"sequence", &q{ModelName: "identity", Parameters: map[string]*pb.InferParameter{"sequence_id": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 7}}}}, codes.Unimplemented, "sequences"},
		{"offset", &q{ModelName: "identity", Inputs: []*in{{Name: "x", Datatype: "FP32", Shape: []int64{1}, Parameters: number("shared_memory_offset", -1)}}}, codes.InvalidArgument, "not be negative"},
		{"classes", &q{ModelName: "identity", Inputs: x(1), Outputs: []*out{{Name: "y", Parameters: number("classification", 1)}}}, codes.Unimplemented, "classification"},
		{"no regions", &q{ModelName: "identity", Inputs: []*in{{Name: "x", Datatype: "FP32", Shape: []int64{1}, Parameters: number("shared_memory_byte_size", 4)}}}, codes.NotFound, "no region"},
		{"large", identity("identity", 1<<19), codes.ResourceExhausted, "at most 1048576 allowed"},
		{"failing", identity("failing", 1), codes.Internal, "model failing failed"},
	} {
		_, err := b.infer(t.Context(), c.q)
		code(t, c.code, err, c.words)
		require.NotContains(t, err.Error(), "secret", c.name)
		a, err := b.infer(t.Context(), identity("identity", 10))
		require.NoError(t, err, c.name)
		require1(t, identity("identity", 10), a)
	}
	err := b.conn.Invoke(t.Context(), "/"+serviceName+"/ModelInfer2", &q{}, &pb.ModelInferResponse{})
	code(t, codes.Unimplemented, err)
}

// A stream answers in order, also with errors, and continues.
func TestStream(t *testing.T) {
	b := newTestbed(t, engine.Options{}, nil, enginetest.Identity())
	s := testenv.Must(b.conn.NewStream(t.Context(), &description.Streams[1], streamMethod, grpc.WaitForReady(true)))(t)
	const n = 50
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range n {
			q := identity("identity", i*1000)
			q.Id = string(rune('a' + i))
			switch i % 3 {
			case 1:
				q.RawInputContents[0] = q.GetRawInputContents()[0][1:] // wrong
			case 2:
				q.Parameters = map[string]*pb.InferParameter{"triton_enable_empty_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}
			}
			if s.SendMsg(q) != nil {
				return
			}
		}
		_ = s.CloseSend()
	})
	for i := range n {
		a := new(pb.ModelStreamInferResponse)
		require.NoError(t, s.RecvMsg(a))
		require.Equal(t, string(rune('a'+i)), a.GetInferResponse().GetId())
		if i%3 == 1 {
			require.Contains(t, a.GetErrorMessage(), "raw_input_contents")
			continue
		}
		require.Empty(t, a.GetErrorMessage())
		require.Equal(t, identity("", i*1000).GetRawInputContents(), a.GetInferResponse().GetRawOutputContents())
		require.Equal(t, i%3 == 2, a.GetInferResponse().GetParameters()["triton_final_response"].GetBoolParam())
	}
	require.ErrorIs(t, s.RecvMsg(new(pb.ModelStreamInferResponse)), io.EOF)
	sending.Wait()
}

// TestRefusalsAreCounted checks that each rejected request is counted once by kind, including those
// on streams that continue.
func TestRefusalsAreCounted(t *testing.T) {
	b := newTestbed(t, engine.Options{}, func(l *limits) { l.message = 1 << 20 }, enginetest.Identity(), enginetest.Failing(errors.New("no")))
	var want [oip.Kinds]uint64
	refuse := func(q *pb.ModelInferRequest, kind oip.Kind) {
		t.Helper()
		require.Error(t, testenv.ErrorOf(b.infer(t.Context(), q)))
		want[kind]++
		require.Equal(t, want, b.engine.Stats().Refused)
	}
	refuse(&pb.ModelInferRequest{}, oip.Invalid)
	refuse(identity("none", 1), oip.NotFound)
	refuse(identity("failing", 1), oip.Internal)
	refuse(identity("identity", 1<<19), oip.TooLarge)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := testenv.Must(b.conn.NewStream(ctx, &description.Streams[1], streamMethod, grpc.WaitForReady(true)))(t)
	for _, model := range []string{"identity", "none", "identity"} {
		require.NoError(t, s.SendMsg(identity(model, 1)))
		a := new(pb.ModelStreamInferResponse)
		require.NoError(t, s.RecvMsg(a))
		if model == "none" {
			require.NotEmpty(t, a.GetErrorMessage())
			want[oip.NotFound]++
		}
		require.Equal(t, want, b.engine.Stats().Refused)
	}
	cancel() // while it waits
	b.quiet(t)
	require.NoError(t, testenv.ErrorOf(b.infer(t.Context(), identity("identity", 1))))
	require.Equal(t, want, b.engine.Stats().Refused)
}

func TestDescribes(t *testing.T) {
	b := newTestbed(t, engine.Options{Name: "a name", Version: "7"}, nil, enginetest.Identity(), enginetest.Sum())
	live := testenv.Must(ask[pb.ServerLiveResponse](t, b, "ServerLive", &pb.ServerLiveRequest{}))(t)
	require.True(t, live.GetLive())
	server := testenv.Must(ask[pb.ServerMetadataResponse](t, b, "ServerMetadata", &pb.ServerMetadataRequest{}))(t)
	require.Equal(t, "a name", server.GetName())
	require.Contains(t, server.GetExtensions(), "statistics")
	meta := testenv.Must(ask[pb.ModelMetadataResponse](t, b, "ModelMetadata", &pb.ModelMetadataRequest{Name: "sum", Version: "1"}))(t)
	require.Equal(t, "b", meta.GetInputs()[1].GetName())
	require.Equal(t, []int64{-1, 2}, meta.GetInputs()[1].GetShape())
	require.Equal(t, "FP64", meta.GetOutputs()[1].GetDatatype())
	require.NoError(t, testenv.ErrorOf(b.infer(t.Context(), identity("identity", 3))))
	stats := testenv.Must(ask[pb.ModelStatisticsResponse](t, b, "ModelStatistics", &pb.ModelStatisticsRequest{}))(t)
	require.Len(t, stats.GetModelStats(), 2)
	require.EqualValues(t, 1, stats.GetModelStats()[0].GetInferenceCount())
	require.NotZero(t, stats.GetModelStats()[0].GetLastInference())
	require.NotZero(t, stats.GetModelStats()[0].GetInferenceStats().GetSuccess().GetNs())
	stats = testenv.Must(ask[pb.ModelStatisticsResponse](t, b, "ModelStatistics", &pb.ModelStatisticsRequest{Name: "sum"}))(t)
	require.Len(t, stats.GetModelStats(), 1)
	index := testenv.Must(ask[pb.RepositoryIndexResponse](t, b, "RepositoryIndex", &pb.RepositoryIndexRequest{Ready: true}))(t)
	require.Equal(t, "READY", index.GetModels()[1].GetState())
	require.NoError(t, testenv.ErrorOf(ask[pb.CudaSharedMemoryStatusResponse](t, b, "CudaSharedMemoryStatus", &pb.CudaSharedMemoryStatusRequest{})))
	require.NoError(t, testenv.ErrorOf(ask[pb.CudaSharedMemoryUnregisterResponse](t, b, "CudaSharedMemoryUnregister", &pb.CudaSharedMemoryUnregisterRequest{})))
	for name, q := range map[string]any{
		"ModelMetadata":   &pb.ModelMetadataRequest{Name: "sum", Version: "9"},
		"ModelStatistics": &pb.ModelStatisticsRequest{Name: "none"}, "RepositoryIndex": &pb.RepositoryIndexRequest{RepositoryName: "none"},
		"SystemSharedMemoryStatus": &pb.SystemSharedMemoryStatusRequest{Name: "none"}, "SystemSharedMemoryUnregister": &pb.SystemSharedMemoryUnregisterRequest{Name: "none"},
	} {
		_, err := ask[pb.ServerLiveResponse](t, b, name, q)
		code(t, codes.NotFound, err)
	}
	for _, name := range []string{"RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryRegister", "CudaSharedMemoryRegister", "ModelConfig", "TraceSetting", "LogSettings"} {
		_, err := ask[pb.ServerLiveResponse](t, b, name, &pb.ServerLiveRequest{})
		code(t, codes.Unimplemented, err)
	}
}

// TestHealth checks that the health status follows the state of the engine and of the server.
func TestHealth(t *testing.T) {
	b := newTestbed(t, engine.Options{}, nil, enginetest.Identity())
	h := healthpb.NewHealthClient(b.conn)
	check := func(service string) healthpb.HealthCheckResponse_ServingStatus {
		a := testenv.Must(h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service}, grpc.WaitForReady(true)))(t)
		return a.GetStatus()
	}
	watch := testenv.Must(h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "identity"}))(t)
	next := func() healthpb.HealthCheckResponse_ServingStatus {
		a := testenv.Must(watch.Recv())(t)
		return a.GetStatus()
	}
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, next())
	for _, service := range []string{"", serviceName, "identity"} {
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, check(service))
	}
	_, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "none"})
	code(t, codes.NotFound, err)
	unknown := testenv.Must(h.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "none"}))(t)
	a := testenv.Must(unknown.Recv())(t)
	require.Equal(t, healthpb.HealthCheckResponse_SERVICE_UNKNOWN, a.GetStatus())

	b.runner.SetHealth(&executor.Error{Kind: executor.ErrWarming})
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, check("identity"))
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, next())
	ready := testenv.Must(ask[pb.ServerReadyResponse](t, b, "ServerReady", &pb.ServerReadyRequest{}))(t)
	require.False(t, ready.GetReady())
	index := testenv.Must(ask[pb.RepositoryIndexResponse](t, b, "RepositoryIndex", &pb.RepositoryIndexRequest{}))(t)
	require.Equal(t, "UNAVAILABLE", index.GetModels()[0].GetState())
	b.runner.SetHealth(nil)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, next())

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, b.server.Drain(ctx))
	_, err = watch.Recv()
	code(t, codes.Unavailable, err)
}

// TestDrain checks that Drain waits for requests in flight, including those on streams, and rejects
// new ones.
func TestDrain(t *testing.T) {
	slow, began, release := enginetest.Blocking("slow")
	b := newTestbed(t, engine.Options{}, nil, enginetest.Identity(), slow)
	var calls sync.WaitGroup
	var answer *pb.ModelInferResponse
	var ended error
	calls.Go(func() {
		answer, ended = b.infer(t.Context(), identity("slow", 5000))
	})
	s := testenv.Must(b.conn.NewStream(t.Context(), &description.Streams[1], streamMethod, grpc.WaitForReady(true)))(t)
	require.NoError(t, s.SendMsg(identity("identity", 1)))
	require.NoError(t, s.RecvMsg(new(pb.ModelStreamInferResponse)))
	<-began
	drained := make(chan error)
	go func() { drained <- b.server.Drain(t.Context()) }()
	code(t, codes.Unavailable, s.RecvMsg(new(pb.ModelStreamInferResponse)), "shutting down")
	close(release)
	calls.Wait()
	require.NoError(t, ended)
	require1(t, identity("slow", 5000), answer)
	require.NoError(t, <-drained)
	require.NoError(t, b.server.Drain(t.Context()), "again")

	// Drain cancels the remaining requests when its context ends.
	other, began, _ := enginetest.Blocking("slow")
	c := newTestbed(t, engine.Options{}, nil, other)
	failed := make(chan error)
	go func() { _, err := c.infer(t.Context(), identity("slow", 5)); failed <- err }()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.server.Drain(ctx), context.Canceled)
	require.Error(t, <-failed)
}

// TestDeadlines checks that the earliest of three deadlines applies: that of the client, of the
// parameter, or of the server.
func TestDeadlines(t *testing.T) {
	slow, _, _ := enginetest.Blocking("slow")
	b := newTestbed(t, engine.Options{Timeout: time.Hour}, nil, slow)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := b.infer(ctx, identity("slow", 1))
	code(t, codes.DeadlineExceeded, err)
	b.quiet(t)
	q := identity("slow", 1)
	q.Parameters = map[string]*pb.InferParameter{"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 20_000}}}
	_, err = b.infer(t.Context(), q)
	code(t, codes.DeadlineExceeded, err, "before model slow was done")
	q.Parameters["timeout"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: 20_000}}
	_, err = b.infer(t.Context(), q)
	code(t, codes.DeadlineExceeded, err)
}

// TestPanic checks that a panic fails only the call that caused it.
func TestPanic(t *testing.T) {
	broken := enginetest.Identity()
	broken.Meta.Name = "broken"
	broken.Infer = func(context.Context, []*usmarray.Array, []*usmarray.Array) ([]*usmarray.Array, error) {
		panic("a defect")
	}
	var log bytes.Buffer
	b := newTestbed(t, engine.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, nil, enginetest.Identity(), broken)
	_, err := b.infer(t.Context(), identity("broken", 5000))
	code(t, codes.Internal, err, "the server failed")
	require.Contains(t, log.String(), "a defect")
	b.quiet(t)
	require.Equal(t, [oip.Kinds]uint64{oip.Internal: 1}, b.engine.Stats().Refused)
	require.NoError(t, testenv.ErrorOf(b.infer(t.Context(), identity("identity", 5000))))
}

// TestMaxCalls checks that a call beyond the bound of all calls is refused, with the time of the next try.
func TestMaxCalls(t *testing.T) {
	slow, began, release := enginetest.Blocking("slow")
	b := newTestbed(t, engine.Options{MaxCalls: 2}, nil, enginetest.Identity(), slow)
	var calls sync.WaitGroup
	for range 2 {
		calls.Go(func() { _, _ = b.infer(t.Context(), identity("slow", 1)) })
		<-began
	}
	var trailer metadata.MD
	_, err := b.infer(t.Context(), identity("identity", 1), grpc.Trailer(&trailer))
	code(t, codes.ResourceExhausted, err, "too many requests")
	require.NotEmpty(t, trailer["grpc-retry-pushback-ms"])
	close(release)
	calls.Wait()
	require.NoError(t, testenv.ErrorOf(b.infer(t.Context(), identity("identity", 1))))
}

// TestReflection checks that reflection lists the services, and that its streams count and end when the server drains.
func TestReflection(t *testing.T) {
	b := newTestbed(t, engine.Options{MaxCalls: 1}, nil, enginetest.Identity())
	stream := testenv.Must(reflectionpb.NewServerReflectionClient(b.conn).ServerReflectionInfo(t.Context()))(t)
	ask := func(q *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		require.NoError(t, stream.Send(q))
		return testenv.Must(stream.Recv())(t)
	}
	var names []string
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	require.Subset(t, names, []string{serviceName, "grpc.health.v1.Health"})
	a := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: serviceName + ".ModelInfer"}})
	require.NotEmpty(t, a.GetFileDescriptorResponse().GetFileDescriptorProto())

	one := testenv.Must(reflectionpb.NewServerReflectionClient(b.conn).ServerReflectionInfo(t.Context()))(t)
	_, err := one.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "the one place is taken")
	require.NoError(t, b.server.Drain(t.Context()), "which ends")
	require.Error(t, testenv.ErrorOf(stream.Recv()))
}
