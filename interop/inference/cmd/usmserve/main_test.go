package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// program builds the service once for all tests and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "usmserve")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "usmserve")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

func TestMain(m *testing.M) {
	status := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

// running is a server process.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   *enginetest.Log
	out   *enginetest.Log
	addr  string // of REST
	grpc  string
	admin string
	ready chan struct{}
	over  chan error
}

// soon is the time limit for starting a service, including compilation of its kernels, and for its
// end, on a machine under load.
const soon = 5 * time.Minute

// start runs the server with the real Python until the test ends, and waits until it is ready.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := launch(t, args...)
	r.await()
	return r
}

// launch runs the server until the test ends.
func launch(t *testing.T, args ...string) *running { return launchWith(t, nil, args...) }

// launchWith runs the server with log as standard error. If log is nil, the output goes to the test
// log.
func launchWith(t *testing.T, log *os.File, args ...string) *running {
	t.Helper()
	testpython.Need(t)
	path := testenv.Must(program())(t)
	r := &running{t: t, log: &enginetest.Log{}, out: &enginetest.Log{}, over: make(chan error, 1), ready: make(chan struct{})}
	r.cmd = exec.Command(path, append([]string{"-addr", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-limit", "256Mi"}, args...)...)
	if r.cmd.Stderr = r.log; log != nil {
		r.cmd.Stderr = log
	}
	out := testenv.Must(r.cmd.StdoutPipe())(t)
	require.NoError(t, r.cmd.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			_, _ = r.out.Write(append(s.Bytes(), '\n'))
			name, address, _ := strings.Cut(s.Text(), " on ")
			switch name {
			case "gRPC":
				r.grpc = address
			case "admin":
				r.admin = address
			case "listening":
				r.addr = address
				close(r.ready)
			}
		}
		r.over <- r.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r
}

// await waits until the server is ready.
func (r *running) await() {
	r.t.Helper()
	select {
	case <-r.ready:
	case err := <-r.over:
		r.t.Fatalf("it ended: %v\n%s", err, r.log)
	case <-time.After(soon):
		r.t.Fatal("it does not get ready: ", r.log)
	}
}

// stop sends SIGTERM and returns the result of waiting for the process.
func (r *running) stop() error {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGTERM))
	err := r.wait()
	require.NotRegexp(r.t, `(?s)draining.*second signal`, r.log, "a second signal must have its effect when the drain begins")
	return err
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case err := <-r.over:
		return err
	case <-time.After(soon):
		r.t.Fatal("it does not end: ", r.log)
		return nil
	}
}

// infer posts one request in JSON and returns status and body.
func (r *running) infer(model, input string, data ...float64) (int, string) {
	body, err := json.Marshal(map[string]any{"inputs": []any{map[string]any{
		"name": input, "datatype": "FP32", "shape": []int{len(data)}, "data": data}}})
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.Post("http://"+r.addr+"/v2/models/"+model+"/infer", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// modelsDir returns a directory with the models of a test.
func modelsDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".py"), []byte(header+text), 0o600))
	}
	return dir
}

const header = `
INPUTS = {"x": ("FP32", (-1,))}
OUTPUTS = {"y": ("FP32", (-1,))}
`

// TestAddresses checks that REST can use a Unix socket, and that ADMIN serves only its own paths.
func TestAddresses(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "rest")
	stale := testenv.Must(net.Listen("unix", socket))(t)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	r := start(t, "-addr", "unix:"+socket, "-grpc", "none", "-admin", "127.0.0.1:0",
		"-models", modelsDir(t, map[string]string{"same": "def infer(x): return {'y': x}"}))
	require.Equal(t, "unix:"+socket, r.addr)
	require.Empty(t, r.grpc)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	for page, want := range map[string]int{"http://service/v2": 200, "http://service/metrics": 404} {
		resp := testenv.Must(client.Get(page))(t)
		resp.Body.Close()
		require.Equal(t, want, resp.StatusCode, page)
	}
	client.CloseIdleConnections()
	for path, want := range map[string]int{"/v2": 404, "/metrics": 200} {
		resp := testenv.Must(http.Get("http://" + r.admin + path))(t)
		resp.Body.Close()
		require.Equal(t, want, resp.StatusCode, path)
	}
	require.NoError(t, r.stop(), "%s", r.log)
}

// TestMaxConnections checks that idle connections that take all places of the service's addresses do not
// stop probes at ADMIN, and that a new client is served as soon as one ends.
func TestMaxConnections(t *testing.T) {
	const most = 16
	r := start(t, "-max-connections", strconv.Itoa(most), "-models", modelsDir(t, map[string]string{"same": "def infer(x): return {'y': x}"}))
	http.DefaultClient.CloseIdleConnections()
	var idle []net.Conn
	for _, address := range []string{r.addr, r.grpc} {
		for range most {
			c := testenv.Must(net.Dial("tcp", address))(t)
			defer c.Close()
			if idle = append(idle, c); address == r.addr { // only a connection with a request may be idle for long
				require.NoError(t, testenv.ErrorOf(io.WriteString(c, "GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")))
			}
			_, err := c.Read(make([]byte, 1)) // of the response, or of gRPC's settings
			require.NoError(t, err)
		}
	}
	served := make(chan int)
	go func() { status, _ := r.infer("same", "x", 1); served <- status }()
	conn := testenv.Must(grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	checked := make(chan error)
	go func() {
		_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		checked <- err
	}()
	for range 10 {
		require.Equal(t, "ok\n", r.page("/readyz"))
	}
	require.Empty(t, served)
	require.NoError(t, idle[0].Close())
	require.Equal(t, http.StatusOK, <-served)
	require.NoError(t, idle[most].Close())
	require.NoError(t, <-checked)
	require.NoError(t, conn.Close())
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, r.stop(), "%s", r.log)
}

const slow = `
import time
def infer(x):
    for _ in range(int(x[0].item())):
        time.sleep(0.01)
    return {"y": x}
def warm(): pass
`

// TestDrainUnderLoad checks SIGTERM under load: requests in flight finish, new ones are refused, and the exit status is 0.
func TestDrainUnderLoad(t *testing.T) {
	r := start(t, "-models", modelsDir(t, map[string]string{"slow": slow}))
	var wg sync.WaitGroup
	began := make(chan struct{}, 64)
	results := make(chan string, 64)
	for range 8 {
		wg.Go(func() {
			for {
				began <- struct{}{}
				status, body := r.infer("slow", "x", 5)
				if status == http.StatusOK {
					continue
				}
				results <- fmt.Sprint(status, " ", body)
				return
			}
		})
		<-began
	}
	go func() {
		for range began {
		}
	}()
	require.Eventually(t, func() bool { status, _ := r.infer("slow", "x", 1); return status == http.StatusOK }, time.Minute, time.Millisecond)
	require.NoError(t, r.stop(), "%s", r.log)
	wg.Wait()
	close(began)
	close(results)
	for result := range results {
		// Either the server rejected the request or the connection ended before a response was
		// sent.
		refused := strings.HasPrefix(result, "503 ") || strings.Contains(result, "connection refused") ||
			strings.Contains(result, "EOF") || strings.Contains(result, "connection reset") ||
			strings.Contains(result, "broken pipe") || strings.Contains(result, "server closed idle connection")
		require.True(t, refused, result)
	}
	require.Contains(t, r.log.String(), "no memory is in use at the end")
}

// TestAdminEndsLast checks the pages of ADMIN while the server drains with a call in flight, with each transport: until
// the call has ended, the server is live and not ready, and has metrics.
func TestAdminEndsLast(t *testing.T) {
	for _, workers := range []string{"0", "1"} {
		waits := filepath.Join(t.TempDir(), "go")
		r := start(t, "-workers", workers, "-models", modelsDir(t, map[string]string{
			"waits": "import os, time\ndef infer(x):\n    while not os.path.exists('" + waits + "'): time.sleep(0.001)\n    return {'y': x}\ndef warm(): pass"}))
		over := make(chan int, 1)
		go func() { status, _ := r.infer("waits", "x", 1); over <- status }()
		busy(t, r)
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		require.Eventually(t, func() bool { return r.get("/v2/health/live") == 0 }, soon, time.Millisecond, "REST refuses connections")
		for path, status := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK} {
			resp := testenv.Must(http.Get("http://" + r.admin + path))(t)
			resp.Body.Close()
			require.Equal(t, status, resp.StatusCode, path)
		}
		require.Contains(t, r.page("/metrics"), "inference_requests_in_flight 1")
		require.NoError(t, os.WriteFile(waits, nil, 0o600))
		require.Equal(t, http.StatusOK, <-over)
		require.NoError(t, r.wait(), "%s", r.log)
	}
}

// TestDrainDeadline checks that requests that do not end within -drain are interrupted, and that their clients get a
// response: a call that runs, one that waits in the queue, and one that waits for memory, over REST and gRPC.
func TestDrainDeadline(t *testing.T) {
	for _, workers := range []string{"0", "1"} {
		r := start(t, "-drain", "300ms", "-slots", "1", "-workers", workers, "-models", modelsDir(t, map[string]string{"slow": slow}))
		const n = 4
		over := make(chan string, 2*n)
		conn := testenv.Must(grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
		for range n {
			go func() {
				status, body := r.infer("slow", "x", 1e6)
				over <- fmt.Sprint(status, " ", body)
			}()
			go func() {
				err := conn.Invoke(t.Context(), "/inference.GRPCInferenceService/ModelInfer", &pb.ModelInferRequest{ModelName: "slow",
					Inputs:           []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1}}},
					RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, math.Float32bits(1e6))}}, new(pb.ModelInferResponse))
				over <- status.Convert(err).Code().String() + " " + status.Convert(err).Message()
			}()
		}
		require.Eventually(t, func() bool {
			return strings.Contains(r.page("/metrics"), fmt.Sprintf("inference_requests_in_flight %d\n", 2*n))
		}, soon, 10*time.Millisecond)
		require.NoError(t, r.stop(), "%s", r.log)
		for range 2 * n {
			require.Regexp(t, `^(503|Unavailable) .*the server is shutting down`, <-over)
		}
		require.NoError(t, conn.Close())
	}
}

const holdsGIL = `
import ctypes
def infer(x):
    if x.size > 1: ctypes.PyDLL(None).sleep(3600)
    return {'y': x}
def warm(): pass
`

// TestNoProgress runs a model that holds the GIL in C, which stops all calls: the server is not ready, which is logged once, and
// ends within the time of -drain and a bound.
func TestNoProgress(t *testing.T) {
	r := start(t, "-timeout", "300ms", "-drain", "1s", "-models", modelsDir(t, map[string]string{"holds": holdsGIL}))
	require.Equal(t, http.StatusOK, r.get("/v2/health/ready"))
	status, body := r.infer("holds", "x", 1, 2)
	require.Equal(t, http.StatusGatewayTimeout, status, body)
	require.Eventually(t, func() bool { return r.get("/v2/health/ready") == http.StatusServiceUnavailable }, soon, 10*time.Millisecond)
	require.Equal(t, http.StatusOK, r.get("/v2/health/live"), "the server stays live for the first minute without progress")
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "calls do not end") }, soon, 10*time.Millisecond)
	require.Equal(t, 1, strings.Count(r.log.String(), "calls do not end"))
	require.Error(t, r.stop())
	require.Contains(t, r.log.String(), "calls did not end within")
}

// get returns the status of a GET, 0 without a response.
func (r *running) get(path string) int {
	resp, err := http.Get("http://" + r.addr + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// page returns the body of a page of ADMIN.
func (r *running) page(path string) string {
	resp, err := http.Get("http://" + r.admin + path)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return string(text)
}

// TestDrainDelay checks that for the time of -drain-delay the server is not ready and still serves requests,
// each with Connection: close, so that clients lose no request when it closes idle connections.
func TestDrainDelay(t *testing.T) {
	r := start(t, "-drain-delay", "5s", "-models", modelsDir(t, map[string]string{"same": "def infer(x): return {'y': x}"}))
	const request = `{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}`
	var clients sync.WaitGroup
	began := make(chan struct{}, 8)
	for range 8 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}} // with a connection of its own
			for n := 0; ; n++ {
				resp, err := client.Post("http://"+r.addr+"/v2/models/same/infer", "application/json", strings.NewReader(request))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Error(resp.Status)
				}
				if n == 0 {
					began <- struct{}{}
				}
				if resp.Close {
					return
				}
			}
		})
	}
	for range 8 {
		<-began
	}
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	clients.Wait()
	require.Equal(t, http.StatusServiceUnavailable, r.get("/v2/health/ready"))
	require.NoError(t, r.wait(), "%s", r.log)
}

// TestModelError checks that an exception of a model is logged once with its traceback, and that
// the output of print appears line by line.
func TestModelError(t *testing.T) {
	r := start(t, "-models", modelsDir(t, map[string]string{"fails": "def infer(x):\n    print('printed by a model')\n    raise ValueError('of the model')\ndef warm(): pass"}))
	status, body := r.infer("fails", "x", 1, 2)
	require.Equal(t, http.StatusInternalServerError, status, body)
	require.NotContains(t, body, "of the model")
	require.Eventually(t, func() bool { return strings.Contains(r.out.String(), "printed by a model") }, soon, time.Millisecond)
	require.NoError(t, r.stop(), "%s", r.log)
	require.Equal(t, 1, strings.Count(r.log.String(), "level=ERROR"), "%s", r.log)
	require.Contains(t, r.log.String(), "Traceback")
}

// TestLogReaderEnds checks that the server continues when the reader of its log ends.
func TestLogReaderEnds(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	r := launchWith(t, write, "-models", modelsDir(t, map[string]string{"fails": "def infer(x): raise OSError\ndef warm(): pass"}))
	require.NoError(t, write.Close())
	r.await()
	require.NoError(t, read.Close())
	for range 2 {
		status, body := r.infer("fails", "x", 1) // makes the server write to the log
		require.Equal(t, http.StatusInternalServerError, status, body)
	}
	require.Equal(t, http.StatusOK, r.get("/v2/health/ready"))
	require.NoError(t, r.stop())
}

// TestSecondSignal checks that a second signal ends the process while a request is running.
func TestSecondSignal(t *testing.T) {
	r := start(t, "-drain", "1h", "-models", modelsDir(t, map[string]string{"slow": slow}))
	go r.infer("slow", "x", 1e6)
	busy(t, r)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "second signal") }, time.Minute, time.Millisecond)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, r.wait())
	require.Contains(t, r.log.String(), "second signal")
}

// busy waits until a request runs.
func busy(t *testing.T, r *running) {
	t.Helper()
	running := regexp.MustCompile(`(?m)^usmbridge_runner_running\{runner="models"\} [1-9]`)
	require.Eventually(t, func() bool { return running.MatchString(r.page("/metrics")) }, time.Minute, 10*time.Millisecond)
}

// TestBrokenModel checks that a broken or badly named file is not ready and has a reason, while the other models
// are served and the server is ready. A file that becomes broken leaves the model that was loaded before. The texts of
// exceptions are in the log only.
func TestBrokenModel(t *testing.T) {
	good := "def infer(x): return {'y': x}"
	dir := modelsDir(t, map[string]string{"good": good, "good-1.5": good, "a b": good, "bad": "def infer(y): pass",
		"raises": "raise OSError('no file')", "cold": good + "\ndef warm(): raise OSError('no weights')"})
	r := start(t, "-models", dir)
	check := func(models map[string]string) {
		t.Helper()
		require.Equal(t, http.StatusOK, r.get("/v2/health/ready"))
		for model, why := range models {
			status, body := r.infer(url.PathEscape(model), "x", 1)
			if why == "" {
				require.Equal(t, http.StatusOK, status, body)
				require.Equal(t, http.StatusOK, r.get("/v2/models/"+model+"/ready"))
				continue
			}
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, body, "model "+model+" is not ready: "+why)
			require.Equal(t, http.StatusServiceUnavailable, r.get("/v2/models/"+url.PathEscape(model)+"/ready"))
		}
	}
	models := map[string]string{"good": "", "good-1.5": "", "a b": "its name is not valid", "bad": "infer does not take INPUTS: missing a required argument: 'y'",
		"raises": `it cannot be imported"}`, "cold": `warm() failed"}`}
	check(models)
	for _, text := range []string{"OSError: no weights", "OSError: no file", "models=6 ready=2"} {
		require.Contains(t, r.log.String(), text)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "good.py"), []byte{0xff}, 0o600))
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return strings.Count(r.log.String(), "models are loaded") == 2 }, soon, 10*time.Millisecond)
	check(models)
	resp := testenv.Must(http.Post("http://"+r.addr+"/v2/repository/index", "application/json", nil))(t)
	defer resp.Body.Close()
	text := testenv.Must(io.ReadAll(resp.Body))(t)
	require.Contains(t, string(text), `{"name":"bad","version":"1","state":"UNAVAILABLE","reason":"model bad is not ready: `)
	require.Contains(t, string(text), `{"name":"good","version":"1","state":"READY","reason":"the last load failed: its file is not UTF-8"}`)
	require.NoError(t, r.stop(), "%s", r.log)
}

// TestHealthWhileLoading checks that the addresses are served while models are imported: the server is live, and not ready.
func TestHealthWhileLoading(t *testing.T) {
	dir := modelsDir(t, map[string]string{"slow": "import time, os\nwhile not os.path.exists('GO'): time.sleep(0.001)\ndef infer(x): return {'y': x}"})
	file := filepath.Join(t.TempDir(), "go")
	text := testenv.Must(os.ReadFile(filepath.Join(dir, "slow.py")))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slow.py"), bytes.ReplaceAll(text, []byte("GO"), []byte(file)), 0o600))
	socket := filepath.Join(t.TempDir(), "s")
	r := launch(t, "-addr", "unix:"+socket, "-models", dir)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	get := func(path string) (int, string) {
		resp, err := client.Get("http://localhost" + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	require.Eventually(t, func() bool { status, _ := get("/v2/health/live"); return status == http.StatusOK }, soon, time.Millisecond)
	status, said := get("/v2/health/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, said, "warming up")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r.await()
	status, said = get("/v2/health/ready")
	require.Equal(t, http.StatusOK, status, said)
	require.NoError(t, r.stop(), "%s", r.log)
}

// TestReload checks that SIGHUP loads all models and the repository extension the named one, and that a request
// in flight finishes on the model that it began with.
func TestReload(t *testing.T) {
	for _, workers := range []string{"0", "2"} { // with two workers, a request can reach the old ones
		t.Run(workers+" workers", func(t *testing.T) {
			waits := filepath.Join(t.TempDir(), "go")
			model := func(value string) string {
				return header + "import os, time\ndef infer(x):\n    while x.size > 1 and not os.path.exists('" + waits + "'): time.sleep(0.001)\n    import numpy\n    return {'y': numpy.float32([" + value + "])}\ndef warm(): pass"
			}
			dir := modelsDir(t, nil)
			write := func(value string) {
				for _, name := range []string{"m.py", "n.py"} {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(model(value)), 0o600))
				}
			}
			write("1")
			r := start(t, "-models", dir, "-workers", workers, "-model-control")
			answers := func(value string, of ...string) func() bool {
				return func() bool {
					status, body := r.infer(append(of, "m")[0], "x", 1)
					return status == http.StatusOK && strings.Contains(body, `"data":[`+value+`.0]`)
				}
			}
			require.True(t, answers("1")())
			inFlight := make(chan string)
			go func() { _, body := r.infer("m", "x", 1, 2); inFlight <- body }()
			busy(t, r)
			write("2")
			require.NoError(t, r.cmd.Process.Signal(syscall.SIGHUP))
			require.Eventually(t, answers("2"), soon, 10*time.Millisecond)
			require.NoError(t, os.WriteFile(waits, nil, 0o600))
			require.Contains(t, <-inFlight, `"data":[1.0]`)
			require.Eventually(t, answers("2", "n"), soon, 10*time.Millisecond)

			post := func(path string, body ...string) int {
				resp := testenv.Must(http.Post("http://"+r.addr+path, "application/json", strings.NewReader(append(body, "{}")[0])))(t)
				resp.Body.Close()
				return resp.StatusCode
			}
			const m, n = "/v2/repository/models/m", "/v2/repository/models/n"
			require.Equal(t, http.StatusOK, post(m+"/unload"))
			status, body := r.infer("m", "x", 1)
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, body, "unloaded")
			require.True(t, answers("2", "n")())
			write("3")
			require.Equal(t, http.StatusOK, post(n+"/load"))
			require.True(t, answers("3", "n")())
			require.Equal(t, http.StatusServiceUnavailable, r.get("/v2/models/m/ready"), "it stays unloaded")
			write("4")
			require.Equal(t, http.StatusOK, post(m+"/load"))
			require.True(t, answers("4")())
			require.True(t, answers("3", "n")(), "it was not loaded again")
			for _, parameter := range []string{"config", "file:1/model.py"} {
				require.Equal(t, http.StatusBadRequest, post(n+"/load", `{"parameters":{"`+parameter+`":"x"}}`))
			}
			require.True(t, answers("3", "n")())
			require.Equal(t, http.StatusOK, post(n+"/load", `{"parameters":{"unknown":"x"}}`))
			require.True(t, answers("4", "n")())
			require.Equal(t, http.StatusNotFound, post("/v2/repository/models/none/load"))
			require.NoError(t, os.Chmod(filepath.Join(dir, "m.py"), 0o666))
			require.Equal(t, http.StatusServiceUnavailable, post(m+"/load"))
			require.True(t, answers("4")(), "the old models are served")
			require.NoError(t, r.stop(), "%s", r.log)
			require.Contains(t, r.log.String(), "no memory is in use at the end")
		})
	}
}

// TestInvalidConfigurations checks the error on standard error and the exit status for invalid
// configurations.
func TestInvalidConfigurations(t *testing.T) {
	taken := testenv.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	open := modelsDir(t, map[string]string{"good": "def infer(x): return {'y': x}"})
	require.NoError(t, os.Chmod(filepath.Join(open, "good.py"), 0o666))
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"unknown flag":   {[]string{"-nothing"}, 2, "not defined"},
		"argument":       {[]string{"models"}, 2, "unexpected argument"},
		"limit":          {[]string{"-limit", "much"}, 2, "invalid number of bytes"},
		"small limit":    {[]string{"-limit", "1Mi"}, 2, "want at least"},
		"negative":       {[]string{"-slots", "-1"}, 2, "must not be negative"},
		"no connections": {[]string{"-max-connections", "0"}, 2, "at least 1"},
		"no time":        {[]string{"-timeout", "0s"}, 2, "more than 0"},
		"log":            {[]string{"-log", "xml"}, 2, "text or json"},
		"no models":      {[]string{"-models", "/nonexistent"}, 1, "no such file"},
		"writable model": {[]string{"-models", open}, 1, "good.py is refused: others can write"},
		"address in use": {[]string{"-addr", "127.0.0.1:0", "-admin", none, "-grpc", taken.Addr().String()}, 1, "address already in use"},
		"bad address":    {[]string{"-addr", "256.0.0.1:x", "-models", t.TempDir()}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			testpython.Need(t)
			path := testenv.Must(program())(t)
			var problems bytes.Buffer
			cmd := exec.Command(path, c.args...)
			cmd.Stderr = &problems
			err := cmd.Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, c.status, exit.ExitCode(), "%s", &problems)
			require.Contains(t, problems.String(), c.says)
			require.NotContains(t, problems.String(), "panic")
		})
	}
}

// TestGuide checks that docs/serving.md names flags and metrics that exist, and all metrics of the server.
func TestGuide(t *testing.T) {
	text := testenv.Must(os.ReadFile("../../../../docs/serving.md"))(t)
	var help bytes.Buffer
	require.ErrorIs(t, testenv.ErrorOf(parse([]string{"-h"}, &help)), flag.ErrHelp)
	flags := regexp.MustCompile("`-([a-z-]+)`").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, flags)
	for _, name := range flags {
		if name[1] != "h" {
			require.Regexp(t, `(?m)^  -`+name[1]+`( |$)`, help.String())
		}
	}
	// The command lines of the container and of KServe's runtime.
	var command []string
	for _, line := range regexp.MustCompile(`(?m)(?:^ENTRYPOINT \["usmserve", | args: \[)(.*)\]$`).FindAllStringSubmatch(string(text), -1) {
		command = append(command, strings.Split(strings.ReplaceAll(line[1], `"`, ""), ", ")...)
	}
	c := testenv.Must(parse(command, io.Discard))(t)
	require.Equal(t, []string{"0.0.0.0:8000", "0.0.0.0:8001", "0.0.0.0:8002", "/mnt/models"}, []string{c.addr, c.grpc, c.admin, c.models})

	r := start(t, "-workers", "1", "-shm-prefix", "usmbridge-guide-", "-models", modelsDir(t, map[string]string{"same": "def infer(x): return {'y': x}"}))
	status, body := r.infer("same", "x", 1)
	require.Equal(t, http.StatusOK, status, body)
	metrics := r.page("/metrics")
	served, described := map[string]bool{}, map[string]bool{}
	for _, name := range regexp.MustCompile(`(?m)^# TYPE inference_(\w+)`).FindAllStringSubmatch(metrics, -1) {
		served[name[1]] = true
	}
	_, table, found := strings.Cut(string(text), "## Metrics, traces and profiles")
	require.True(t, found)
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(table[:strings.Index(table, "\n## ")], -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			described[name[1]] = true
		}
	}
	require.Equal(t, served, described)
	for _, prefix := range []string{"usmbridge_memory_", "usmbridge_runner_", "usmbridge_worker_", "go_", "process_"} {
		require.Contains(t, metrics, "\n"+prefix)
	}
	require.NoError(t, r.stop(), "%s", r.log)
}

func TestConfig(t *testing.T) {
	for text, n := range map[string]uint64{"": 0, "1": 1, "512Mi": 512 << 20, "3Ti": 3 << 40, "1Ki": 1024} {
		got, err := parseBytes(text)
		require.NoError(t, err, text)
		require.Equal(t, n, got, text)
	}
	for _, text := range []string{"0", "-1", "1.5", "1KB", "x", "9223372036854775807Ti", "5Pi", "Mi"} {
		require.Error(t, testenv.ErrorOf(parseBytes(text)), text)
	}
	for _, c := range []struct {
		args   []string
		shares bool
		admin  string
	}{
		{nil, false, "127.0.0.1:8002"},
		{[]string{"-shm-prefix", "a."}, true, "127.0.0.1:8002"},
		{[]string{"-addr", "0.0.0.0:8000", "-admin", none}, false, none},
		{[]string{"-grpc", none, "-addr", "unix:/run/x"}, true, "127.0.0.1:8002"},
		{[]string{"-grpc", "unix:/run/x"}, true, "127.0.0.1:8002"},
		{[]string{"-admin", "unix:/run/x"}, false, "unix:/run/x"},
	} {
		got, err := parse(c.args, io.Discard)
		require.NoError(t, err, c.args)
		require.Equal(t, c.shares, got.sharesMemory(), c.args)
		require.Equal(t, c.admin, got.admin, c.args)
	}
	got := testenv.Must(parse([]string{"-shm-prefix", "/a-"}, io.Discard))(t)
	require.Equal(t, "a-", got.shmPrefix)
	require.ErrorContains(t, testenv.ErrorOf(parse([]string{"-shm-prefix", "sem."}, io.Discard)), "-shm-prefix")
}

// TestServiceWithWorkers checks that workers serve requests, and that a worker that dies is replaced, which
// is counted.
func TestServiceWithWorkers(t *testing.T) {
	r := start(t, "-workers", "2", "-models", modelsDir(t, map[string]string{
		"same": "def infer(x): return {'y': x}",
		"dies": "import os\ndef infer(x): os.abort()\ndef warm(): pass"}))
	status, body := r.infer("same", "x", 1, 2.5)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"data":[1.0,2.5]`)
	status, body = r.infer("dies", "x", 1)
	require.Equal(t, http.StatusInternalServerError, status, body)
	require.Contains(t, body, "model dies failed")
	status, body = r.infer("same", "x", 3)
	require.Equal(t, http.StatusOK, status, body)
	require.Eventually(t, func() bool {
		return strings.Count(r.page("/metrics"), "\nusmbridge_worker_ready{runner=\"models\",worker=") == 2
	}, soon, 10*time.Millisecond)
	restarted := func(pattern, text string) bool {
		all := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
		return len(all) == 2 && (all[0][1] == "1") != (all[1][1] == "1")
	}
	require.True(t, restarted(`(?m)^usmbridge_worker_restarts_total{runner="models",worker="\d"} (\d)$`, r.page("/metrics")))
	require.NoError(t, r.stop(), "%s", r.log)
	require.Contains(t, r.log.String(), "no memory is in use at the end")
}
