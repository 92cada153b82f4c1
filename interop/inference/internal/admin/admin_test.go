package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/memmgr"
)

// Who may ask, and by which name.
func TestGuard(t *testing.T) {
	g := &guard{hosts: []string{"inference.example"}, next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})}
	type headers map[string]string
	for _, c := range []struct {
		name, method, host, path string
		headers                  headers
		status                   int
	}{
		{"a tool", "GET", "127.0.0.1:8000", "/metrics", nil, 204},
		{"IPv6", "GET", "[::1]:8000", "/metrics", nil, 204},
		{"IPv6 without a port", "GET", "[::1]", "/metrics", nil, 204},
		{"localhost", "HEAD", "LocalHost.:8000", "/", nil, 204},
		{"an address from elsewhere", "GET", "10.0.0.7:9000", "/readyz", nil, 204},
		{"the operator's name", "GET", "Inference.example:9000", "/metrics", nil, 204},
		{"a name that was rebound", "GET", "evil.example:8000", "/", nil, 421},
		{"localhost as a part", "GET", "localhost.evil.example", "/", nil, 421},
		{"an address as a part", "GET", "127.0.0.1.evil.example", "/", nil, 421},
		{"no name", "GET", "", "/", nil, 421},
		{"posting", "POST", "localhost", "/metrics", nil, 405},
		{"asking leave", "OPTIONS", "localhost", "/metrics", headers{"Origin": "https://evil.example"}, 405},
		{"the page itself", "GET", "localhost:8000", "/events", headers{"Sec-Fetch-Site": "same-origin"}, 204},
		{"typed in", "GET", "localhost:8000", "/metrics", headers{"Sec-Fetch-Site": "none"}, 204},
		{"an image of another site", "GET", "localhost:8000", "/debug/pprof/profile", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, 403},
		{"another port of this machine", "GET", "localhost:8000", "/events", headers{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403},
		{"a link to the page", "GET", "localhost:8000", "/", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 204},
		{"a link to a profile", "GET", "localhost:8000", "/debug/pprof/profile", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{"a frame", "GET", "localhost:8000", "/", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"an old browser", "GET", "localhost:8000", "/events", headers{"Origin": "https://evil.example"}, 403},
		{"an old browser, the page", "GET", "localhost:8000", "/events", headers{"Origin": "http://localhost:8000"}, 204},
		{"an origin without a host", "GET", "localhost:8000", "/events", headers{"Origin": "null"}, 403},
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
			require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
		})
	}
}

// Everything that the package's page lists is there, and nothing else.
func TestPaths(t *testing.T) {
	s := newService(t)
	for path, kind := range map[string]string{
		"/": "text/html", "/page/page.css": "text/css", "/page/page.js": "text/javascript", "/page/icon.svg": "image/svg+xml",
		"/metrics": "text/plain", "/livez": "text/plain", "/readyz": "text/plain",
		"/debug/pprof/": "text/html", "/debug/pprof/heap": "application/octet-stream", "/debug/pprof/goroutine?debug=1": "text/plain",
		"/debug/pprof/memory": "application/octet-stream", "/debug/memory.svg": "image/svg+xml", "/debug/memory.json": "application/json",
		"/debug/pprof/profile?seconds=1": "application/octet-stream",
	} {
		status, body, header := s.get(t, path, nil)
		require.Equal(t, 200, status, "%s: %s", path, body)
		require.Contains(t, header.Get("Content-Type"), kind, path)
		require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
	}
	for _, path := range []string{"/v2", "/index.html", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/vars", "/page/../admin.go", "/etc/passwd"} {
		status, _, _ := s.get(t, path, nil)
		require.Equal(t, 404, status, path)
	}
	for i, seconds := range []string{"-1", "0", "0.5", "1e9", "121", "NaN", "ten"} {
		name := []string{"trace", "profile", "heap"}[i%3]
		status, _, _ := s.get(t, "/debug/pprof/"+name+"?seconds="+seconds, nil)
		require.Equal(t, 400, status, seconds)
	}
}

// A body that never comes keeps nobody waiting.
func TestBodyThatNeverComes(t *testing.T) {
	s := newService(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
	require.NoError(t, err)
	said, err := io.ReadAll(c)
	require.NoError(t, err, "it is closed")
	require.Contains(t, string(said), "HTTP/1.1 ")
}

// A profile over time is one at a time, bounded, and does not outlive the handler.
func TestProfileEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	began := make(chan struct{}, 1)
	h := overTime(ctx, 30, func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
	})
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/?seconds=120", nil))
	}()
	<-began
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.Equal(t, 503, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	cancel()
	<-over
}

// The page names no other server, and has nothing in it that its policy forbids.
func TestNothingFromElsewhere(t *testing.T) {
	for _, name := range []string{"index.html", "page.css", "page.js", "icon.svg"} {
		text, err := files.ReadFile("page/" + name)
		require.NoError(t, err)
		rest := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // a name, not a place
		for _, bad := range []string{"http://", "https://", "//cdn", "@import", "style=", "onclick", "innerHTML", "<style"} {
			require.NotContains(t, rest, bad, name)
		}
	}
	require.NotContains(t, profileIndex, "style=")
}

func TestProbes(t *testing.T) {
	s := newService(t)
	for _, path := range []string{"/livez", "/readyz"} {
		status, body, _ := s.get(t, path, nil)
		require.Equal(t, 200, status)
		require.Equal(t, "ok\n", body)
	}
	s.runner.SetHealth(&executor.Error{Kind: executor.ErrStuck, Err: errors.New("/secret/path of ours")})
	status, body, _ := s.get(t, "/readyz", nil)
	require.Equal(t, 503, status)
	require.NotContains(t, body, "secret")
	status, _, _ = s.get(t, "/livez", nil)
	require.Equal(t, 200, status, "it may come back")
	s.runner.SetHealth(nil)
	s.engine.Drain()
	status, body, _ = s.get(t, "/readyz", nil)
	require.Equal(t, 503, status)
	require.Contains(t, body, "shutting down")
}

// Names, units and types are what Prometheus's conventions want, and the values what happened.
func TestMetrics(t *testing.T) {
	s := newServiceWith(t, Options{Workers: func() []Worker {
		return []Worker{{Name: "worker 1", State: "ready", Ready: true, Calls: 5, Restarts: 2}, {Name: "worker 2", State: "starting"}}
	}})
	for range 3 {
		require.NoError(t, s.request("10.0.0.1", "identity", 1000))
	}
	require.Error(t, s.request("token-of-a-client", "failing", 10))
	require.Error(t, s.request("10.0.0.1", "none", 10))
	c := newCollector(s.engine, Options{Workers: func() []Worker { return []Worker{{Name: "worker 1", Ready: true, Restarts: 2}} }})
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)

	status, text, _ := s.get(t, "/metrics", nil)
	require.Equal(t, 200, status)
	for _, line := range []string{
		`inference_requests_total{model="identity",outcome="success",version="1"} 3`,
		`inference_requests_total{model="failing",outcome="failure",version="1"} 1`,
		`inference_request_duration_seconds_count{model="identity",version="1"} 3`,
		`inference_input_bytes_total{model="identity",version="1"} 12000`,
		`inference_model_ready{model="sum",version="1"} 1`,
		`inference_tenant_requests_in_flight{tenant="10.0.0.1"} 0`,
		`inference_memory_kept_requests_total{model="identity",version="1"} 0`,
		`inference_refusals_total{kind="internal"} 1`, `inference_refusals_total{kind="not found"} 1`, `inference_refusals_total{kind="busy"} 0`,
		`inference_memory_limit_bytes{pool="inference"} 6.7108864e+07`, `inference_memory_limit_bytes{pool="calls"} 1.6777216e+07`,
		`usmbridge_memory_reserved_bytes{place="host memory",pool="calls"} `,
		`inference_requests_in_flight 0`,
		`inference_ready 1`, `inference_live 1`, `inference_draining 0`,
		`inference_worker_ready{worker="worker 1"} 1`, `inference_worker_ready{worker="worker 2"} 0`,
		`inference_worker_restarts_total{worker="worker 1"} 2`,
		`usmbridge_memory_reserved_bytes{place="host memory",pool="inference"} `,
		`go_goroutines `, `process_cpu_seconds_total `,
	} {
		require.Contains(t, text, "\n"+line)
	}
	require.NotContains(t, text, "token-of-a-client")
}

// However many tenants there are, the series are bounded, and a tenant that has one keeps it.
func TestTenantsAreBounded(t *testing.T) {
	c := &collector{named: map[string]string{}}
	c.d.tenants = c.d.add("tenants", "t")
	c.d.tenantRequests = c.d.add("r", "r", "tenant")
	c.d.tenantBytes = c.d.add("b", "b", "tenant")
	count := func(all []engine.TenantStats) int {
		to := make(chan prometheus.Metric, 10000)
		c.tenants(giver{to}, all)
		return len(to)
	}
	for round := range 20 {
		var all []engine.TenantStats
		for i := range 1000 {
			all = append(all, engine.TenantStats{Name: strings.Repeat("x", round+1) + string(rune('0'+i)), Requests: 1})
		}
		require.LessOrEqual(t, count(all), 1+2*(namedTenants+1))
	}
	require.Len(t, c.named, namedTenants)
}

// The feed: what was before, then what is, to so many viewers and no more; Close lets them go.
func TestFeed(t *testing.T) {
	s := newServiceWith(t, Options{Viewers: 2})
	require.NoError(t, s.request("10.0.0.1", "identity", 1<<20))
	require.Error(t, s.request("10.0.0.1", "none", 1))
	for range 2 {
		require.Error(t, s.request("10.0.0.1", "failing", 1))
	}
	var open []*http.Response
	for range 2 {
		answer, err := http.Get(s.url + "/events")
		require.NoError(t, err)
		defer answer.Body.Close()
		require.Equal(t, 200, answer.StatusCode)
		require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
		open = append(open, answer)
	}
	status, body, header := s.get(t, "/events", nil)
	require.Equal(t, 503, status, body)
	require.NotEmpty(t, header.Get("Retry-After"))

	in := bufio.NewScanner(open[0].Body)
	in.Buffer(nil, 1<<20)
	next := func(event string, into any) {
		require.True(t, in.Scan())
		require.Equal(t, "event: "+event, in.Text())
		require.True(t, in.Scan())
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		require.True(t, ok)
		require.NoError(t, json.Unmarshal([]byte(data), into))
		require.True(t, in.Scan())
		require.Empty(t, in.Text())
	}
	var h historyView
	next("history", &h)
	require.Len(t, h.P50, len(h.Rate))
	var v view
	for v.Memory == nil || v.Memory.Segments == nil { // a picture is only made for those who look on
		next("state", &v)
	}
	require.Equal(t, "inference", v.Memory.Name)
	require.Equal(t, []string{"identity", "sum", "failing"}, []string{v.Models[0].Name, v.Models[1].Name, v.Models[2].Name})
	require.EqualValues(t, 1, v.Models[0].Served)
	require.Equal(t, "10.0.0.1", v.Tenants[0].Name)
	require.Equal(t, []refusedView{{"internal", 2}, {"not found", 1}}, v.Refused)
	require.Equal(t, "calls", v.Calls.Name)
	require.EqualValues(t, 16<<20, v.Calls.Limit)

	// One goes, and another may come.
	open[1].Body.Close()
	require.Eventually(t, func() bool {
		answer, err := http.Get(s.url + "/events")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == 200
	}, 30*time.Second, 10*time.Millisecond)
	s.close()
	_, _ = io.Copy(io.Discard, open[0].Body) // ended or cut off, but over
}

// A snapshot of any size is a picture of bounded size, and shows small buffers.
func TestPaint(t *testing.T) {
	snapshot := &memmgr.Snapshot{}
	for i := range 1000 {
		seg := memmgr.SnapshotSegment{Address: uintptr(i) << 30, Size: uint64(i+1) << 12}
		for b := range 64 {
			block := memmgr.SnapshotBlock{Address: seg.Address + uintptr(b*int(seg.Size)/64), Size: seg.Size / 64, State: memmgr.BlockFree}
			switch b % 4 {
			case 0:
				block.State, block.Tag = memmgr.BlockActive, strings.Repeat("t", i%40)
			case 1:
				block.State = memmgr.BlockPending
			case 2:
				block.Cached = true
			}
			seg.Blocks = append(seg.Blocks, block)
		}
		snapshot.Segments = append(snapshot.Segments, seg)
	}
	p := paint(snapshot)
	require.Len(t, p.Segments, mostSegments)
	require.Equal(t, 1000-mostSegments, p.More)
	require.EqualValues(t, 1000<<12, p.Segments[0].Size)
	require.Equal(t, strings.Repeat("uuppccff", cells/8), p.Segments[0].Cells)
	require.EqualValues(t, 1000<<12/4, p.Segments[0].Used)
	require.Len(t, p.Holders, mostHolders+1)
	buffers := 0
	for _, h := range p.Holders {
		buffers += h.Buffers
	}
	require.Equal(t, 16*1000, buffers)
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.Less(t, len(text), 16<<10)

	one := &memmgr.SnapshotSegment{Size: 2 << 20, Blocks: []memmgr.SnapshotBlock{
		{Address: 4096, Size: 4096, State: memmgr.BlockActive}, {Address: 8192, Size: 2<<20 - 8192, State: memmgr.BlockFree}}}
	require.Equal(t, "u"+strings.Repeat("f", cells-1), cellsOf(one))
}

func TestQuantile(t *testing.T) {
	require.Nil(t, quantile(&histogram{}, .5))
	h := &histogram{}
	h.Counts[2] = 100 // 0.25 to 0.5 ms
	require.InDelta(t, .000375, *quantile(h, .5), 1e-9)
	h.Counts[len(h.Counts)-1] = 100
	require.InDelta(t, 30, *quantile(h, .99), 1e-9)
	then := *h
	h.Counts[0] += 4
	d := since(h, &then)
	require.EqualValues(t, 4, count(&d))
}
