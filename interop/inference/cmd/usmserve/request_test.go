package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// TestModelReadsRequest checks the keyword-only parameter request of infer, with each transport, and in workers: the ID and
// the parameters of the request. The models refuse the request with a text of what they see.
func TestModelReadsRequest(t *testing.T) {
	const show = "raise InvalidInput(f'{request.id!r} {sorted(request.parameters.items())!r}')\ndef warm(): pass"
	const module = "from usmbridge.serving import InvalidInput\n"
	for _, workers := range []string{"0", "1"} {
		r := start(t, "-workers", workers, "-models", modelsDir(t, map[string]string{
			"returns":    module + "def infer(x, *, request): " + show,
			"writes":     module + "def infer(x, *, outputs, request): " + show,
			"positional": "def infer(x, request=None): return {'y': x} if request is None else None\ndef warm(): pass",
			"input":      "INPUTS = {'x': ('FP32', (-1,)), 'request': ('FP32', (1,))}\ndef infer(x, *, request): return {'y': request}\ndef warm(): pass",
			"first":      "def infer(x, *, request):\n    assert request.id == '' and request.parameters == {}\n    return {'y': x}",
		}))
		post := func(model, body string) (int, string) {
			resp := testenv.Must(http.Post("http://"+r.addr+"/v2/models/"+model+"/infer", "application/json", strings.NewReader(body)))(t)
			defer resp.Body.Close()
			return resp.StatusCode, string(testenv.Must(io.ReadAll(resp.Body))(t))
		}
		conn := testenv.Must(grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
		const x = `"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]`
		for _, model := range []string{"returns", "writes"} {
			for members, want := range map[string]string{
				``: `'' []`,
				`"id":"a\u00e9\"b","parameters":{"n":5,"f":1.5,"big":1e3,"s":"x\n","b":true,"timeout":60000000,"nested":{"a":[1]},"none":null},`: `'aé"b' [('b', True), ('big', 1000.0), ('f', 1.5), ('n', 5), ('s', 'x\n'), ('timeout', 60000000)]`,
			} {
				code, body := post(model, "{"+members+x+"}")
				require.Equal(t, http.StatusBadRequest, code, body)
				var answer struct{ Error string }
				require.NoError(t, json.Unmarshal([]byte(body), &answer))
				require.Equal(t, "model "+model+": "+want, answer.Error)
			}
			code, body := post(model, `{"parameters":{"s":"`+strings.Repeat("x", 70000)+`"},`+x+"}")
			require.Equal(t, http.StatusRequestEntityTooLarge, code, body)

			q := &pb.ModelInferRequest{ModelName: model, Id: "grpc", Parameters: map[string]*pb.InferParameter{
				"b": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}, "n": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: -5}},
				"u": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: 1<<64 - 1}}, "d": {ParameterChoice: &pb.InferParameter_DoubleParam{DoubleParam: 0.5}},
				"s": {ParameterChoice: &pb.InferParameter_StringParam{StringParam: "text"}}},
				Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1}}},
				RawInputContents: [][]byte{{0, 0, 0, 0}}}
			err := conn.Invoke(t.Context(), "/inference.GRPCInferenceService/ModelInfer", q, new(pb.ModelInferResponse))
			require.Contains(t, status.Convert(err).Message(), `'grpc' [('b', True), ('d', 0.5), ('n', -5), ('s', 'text'), ('u', 18446744073709551615)]`)
		}
		code, body := post("positional", `{"id":"a",`+x+"}")
		require.Equal(t, http.StatusOK, code, body)
		code, body = post("input", `{"id":"a",`+strings.TrimSuffix(x, "]")+`,{"name":"request","datatype":"FP32","shape":[1],"data":[7]}]}`)
		require.Equal(t, http.StatusOK, code, body)
		require.Contains(t, body, `"data":[7.0]`)
		require.NoError(t, conn.Close())
		require.NotContains(t, r.log.String(), "the first call, on zeros, failed")
		require.NoError(t, r.stop(), "%s", r.log)
	}
}
