package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/executor"
)

// TestGuard checks that the guard admits requests by method, Host and origin.
func TestGuard(t *testing.T) {
	g := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}), []string{"inference.example"})
	type headers map[string]string
	for _, c := range []struct {
		name, method, host, path string
		headers                  headers
		status                   int
	}{
		{"a tool", "GET", "127.0.0.1:8000", "/metrics", nil, 204},
		{"localhost", "HEAD", "LocalHost.:8000", "/", nil, 204},
		{"the operator's name", "GET", "Inference.example:9000", "/metrics", nil, 204},
		{"a name that was rebound", "GET", "evil.example:8000", "/", nil, 403},
		{"no name", "GET", "", "/", nil, 403},
		{"asking leave", "OPTIONS", "localhost", "/metrics", headers{"Origin": "https://evil.example"}, 403},
		{"the page itself", "GET", "localhost:8000", "/metrics", headers{"Sec-Fetch-Site": "same-origin"}, 204},
		{"an image of another site", "GET", "localhost:8000", "/debug/pprof/profile", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 403},
		{"an old browser", "GET", "localhost:8000", "/metrics", headers{"Origin": "https://evil.example"}, 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "http://x"+c.path, nil)
			r.Host = c.host
			for k, v := range c.headers {
				r.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			require.Equal(t, c.status, w.Code, w.Body)
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
		})
	}
}

// TestPaths checks that exactly the paths of the package documentation are served.
func TestPaths(t *testing.T) {
	s := newService(t)
	for path, kind := range map[string]string{
		"/metrics": "text/plain", "/livez": "text/plain", "/readyz": "text/plain",
		"/debug/pprof/": "text/html", "/debug/pprof/heap": "application/octet-stream", "/debug/pprof/goroutine?debug=1": "text/plain",
		"/debug/pprof/memory": "application/octet-stream", "/debug/pprof/profile?seconds=1": "application/octet-stream",
	} {
		status, body, header := s.get(t, path)
		require.Equal(t, 200, status, "%s: %s", path, body)
		require.Contains(t, header.Get("Content-Type"), kind, path)
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
	}
	for _, path := range []string{"/", "/v2", "/index.html", "/debug/memory.json", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/vars", "/etc/passwd"} {
		status, _, _ := s.get(t, path)
		require.Equal(t, 404, status, path)
	}
	answer, err := http.Post(s.url+"/metrics", "", nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 405, answer.StatusCode)
}

// TestProfileEnds checks that a profile ends with the context of the server.
func TestProfileEnds(t *testing.T) {
	s := newService(t)
	over := make(chan string)
	go func() {
		status, body := 500, ""
		for status == 500 { // while the short trace below runs
			status, body, _ = s.get(t, "/debug/pprof/trace?seconds=120")
		}
		over <- body
	}()
	require.Eventually(t, func() bool { // one trace runs at a time
		status, _, _ := s.get(t, "/debug/pprof/trace?seconds=0.001")
		return status == 500
	}, time.Minute, time.Millisecond)
	s.cancel()
	require.NotEmpty(t, <-over)
}

// deadlines records the write deadline of a response.
type deadlines struct {
	*httptest.ResponseRecorder
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.last = t
	return nil
}

// TestSlowReader checks that the client cannot choose how long a response may take: a trace that is not read stays in
// memory, and no other one runs meanwhile.
func TestSlowReader(t *testing.T) {
	server := Server(t.Context(), newService(t).engine, nil)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), http.ServerContextKey, server))
	cancel()
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "http://localhost/debug/pprof/trace?seconds=1000000", nil))
	require.WithinRange(t, w.last, time.Now(), time.Now().Add(time.Hour))
}

func TestProbes(t *testing.T) {
	s := newService(t)
	for _, path := range []string{"/livez", "/readyz"} {
		status, body, _ := s.get(t, path)
		require.Equal(t, 200, status)
		require.Equal(t, "ok\n", body)
	}
	s.runner.SetHealth(&executor.Error{Kind: executor.ErrStuck, Err: errors.New("/secret/path of ours")})
	status, body, _ := s.get(t, "/readyz")
	require.Equal(t, 503, status)
	require.NotContains(t, body, "secret")
	status, _, _ = s.get(t, "/livez")
	require.Equal(t, 200, status, "the runner may recover")
	s.runner.SetHealth(nil)
	s.engine.Drain()
	status, body, _ = s.get(t, "/readyz")
	require.Equal(t, 503, status)
	require.Contains(t, body, "shutting down")
}

// TestMetrics checks that names, units and types follow the conventions of Prometheus, and that the
// values match the requests of the test.
func TestMetrics(t *testing.T) {
	s := newService(t)
	for range 3 {
		require.NoError(t, s.request("identity", 1000))
	}
	require.Error(t, s.request("failing", 10))
	require.Error(t, s.request("none", 10))
	problems, err := testutil.CollectAndLint(collector{s.engine})
	require.NoError(t, err)
	require.Empty(t, problems)

	status, text, _ := s.get(t, "/metrics")
	require.Equal(t, 200, status)
	for _, line := range []string{
		`inference_requests_total{model="identity",outcome="success",version="1"} 3`,
		`inference_requests_total{model="failing",outcome="failure",version="1"} 1`,
		`inference_request_duration_seconds_count{model="identity",version="1"} 3`,
		`inference_input_bytes_total{model="identity",version="1"} 12000`,
		`inference_model_ready{model="sum",version="1"} 1`,
		`inference_memory_kept_requests_total{model="identity",version="1"} 0`,
		`inference_refusals_total{kind="internal"} 1`, `inference_refusals_total{kind="not found"} 1`, `inference_refusals_total{kind="busy"} 0`,
		`inference_memory_limit_bytes{pool="inference"} 6.7108864e+07`, `inference_memory_limit_bytes{pool="calls"} 1.6777216e+07`,
		`usmbridge_memory_reserved_bytes{place="host memory",pool="calls"} `,
		`inference_requests_in_flight 0`, `inference_calls_in_flight 0`,
		`inference_ready 1`, `inference_live 1`, `inference_draining 0`,
		`usmbridge_runner_calls_total{runner="models"} `, `usmbridge_runner_oldest_seconds{runner="models"} `,
		`usmbridge_memory_reserved_bytes{place="host memory",pool="inference"} `,
		`go_goroutines `, `process_cpu_seconds_total `,
	} {
		require.Contains(t, text, "\n"+line)
	}
}
