//go:build cgo && linux

package rest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/executor"
)

// TestMetadata checks the descriptions of the server and of its models, and their health.
func TestMetadata(t *testing.T) {
	v := serve(t, setup{})
	for _, c := range []struct{ path, want string }{
		{"/v2", `{"name":"test","version":"7","extensions":["binary_tensor_data","model_repository","statistics","system_shared_memory"]}`},
		{"/v2/models/sum", `{"name":"sum","versions":["1"],"platform":"go","inputs":[{"name":"a","datatype":"INT64","shape":[-1,2]},{"name":"b","datatype":"INT64","shape":[-1,2]}],
			"outputs":[{"name":"sum","datatype":"INT64","shape":[-1,2]},{"name":"total","datatype":"FP64","shape":[]}]}`},
		{"/v2/models/cudasharedmemory/../sum", ""},
		{"/v2/cudasharedmemory/status", `[]`},
		{"/v2/systemsharedmemory/status", `[]`},
	} {
		r := v.do("GET", c.path, nil)
		if c.want == "" {
			r.message(t, 404)
			continue
		}
		require.Equal(t, 200, r.status, c.path)
		require.JSONEq(t, c.want, string(r.body), c.path)
		require.Equal(t, "application/json", r.header.Get("Content-Type"))
	}
	require.Equal(t, v.do("GET", "/v2/models/sum", nil).body, v.do("GET", "/v2/models/sum/versions/1", nil).body)
	require.Equal(t, v.do("GET", "/v2/models/sum", nil).body, v.do("GET", "/v2/models/s%75m", nil).body)
	require.Empty(t, v.do("HEAD", "/v2/models/sum", nil).body)
	for path, body := range map[string]string{"/v2/health/live": `{"live":true}`, "/v2/health/ready": `{"ready":true}`,
		"/v2/models/sum/ready": `{"name":"sum","ready":true}`, "/v2/models/sum/versions/1/ready": `{"name":"sum","ready":true}`} {
		r := v.do("GET", path, nil)
		require.Equal(t, 200, r.status, path)
		require.Equal(t, body, string(r.body))
	}
	require.JSONEq(t, `[{"name":"halves","version":"1","state":"READY","reason":""},{"name":"identity","version":"1","state":"READY","reason":""},
		{"name":"kinds","version":"1","state":"READY","reason":""},{"name":"sum","version":"1","state":"READY","reason":""}]`,
		string(v.do("POST", "/v2/repository/index", nil).body))

	v.runner.SetHealth(&executor.Error{Kind: executor.ErrWarming})
	require.Contains(t, v.do("GET", "/v2/health/ready", nil).message(t, 503), "warming up")
	require.Equal(t, 503, v.do("GET", "/v2/models/sum/ready", nil).status)
	require.Equal(t, 200, v.do("GET", "/v2/health/live", nil).status)
	require.Equal(t, "[]", string(v.do("POST", "/v2/repository/index", []byte(`{"ready":true}`)).body))
	require.Contains(t, string(v.do("POST", "/v2/repository/index", []byte(`{}`)).body), `"state":"UNAVAILABLE"`)
	v.runner.SetHealth(nil)
}

// TestStatistics checks the statistics extension.
func TestStatistics(t *testing.T) {
	v := serve(t, setup{})
	require.Equal(t, 200, v.inference("identity", binaryFloats(1), floats(1)).status)
	require.Equal(t, 400, v.inference("identity", binaryFloats(1), floats(1, 2)).status)
	var all struct {
		Stats []struct {
			Name           string `json:"name"`
			Version        string `json:"version"`
			LastInference  int64  `json:"last_inference"`
			InferenceCount int    `json:"inference_count"`
			ExecutionCount int    `json:"execution_count"`
			InferenceStats map[string]struct {
				Count, NS int
			} `json:"inference_stats"`
			BatchStats []any `json:"batch_stats"`
		} `json:"model_stats"`
	}
	// The client can receive the response before the request has ended on the server.
	require.Eventually(t, func() bool {
		m, err := v.engine.Model("identity", "")
		return err == nil && m.Stats().Fail.Count == 1 && m.Stats().Success.Count == 1
	}, 30*time.Second, time.Millisecond)
	require.NoError(t, json.Unmarshal(v.do("GET", "/v2/models/stats", nil).body, &all))
	require.Len(t, all.Stats, 4)
	one := all.Stats[1]
	require.Equal(t, "identity", one.Name)
	require.Equal(t, "1", one.Version)
	require.Equal(t, 1, one.InferenceCount)
	require.Equal(t, 1, one.ExecutionCount)
	require.NotZero(t, one.LastInference)
	require.NotNil(t, one.BatchStats)
	for _, what := range []string{"success", "queue", "compute_input", "compute_infer", "compute_output"} {
		require.Equal(t, 1, one.InferenceStats[what].Count, what)
	}
	for _, path := range []string{"/v2/models/sum/stats", "/v2/models/sum/versions/1/stats"} {
		require.NoError(t, json.Unmarshal(v.do("GET", path, nil).body, &all))
		require.Len(t, all.Stats, 1)
		require.Equal(t, "sum", all.Stats[0].Name)
	}
}
