package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// same is a model that copies its input to its output in the caller's memory.
const same = `
def infer(*, x, outputs):
    import numpy
    numpy.copyto(numpy.asarray(outputs["y"]), numpy.asarray(x))
`

// wire encodes an inference request of FP32 [n]. If parameters is not empty, it replaces the data
// of the tensor.
func wire(n int, parameters, outputs string) (text, whole []byte) {
	binaryData := parameters == ""
	if binaryData {
		parameters = fmt.Sprintf(`"binary_data_size":%d`, 4*n)
	}
	text = fmt.Appendf(nil, `{"inputs":[{"name":"x","shape":[%d],"datatype":"FP32","parameters":{%s}}],%s"parameters":{"binary_data_output":true}}`,
		n, parameters, outputs)
	body := bytes.Clone(text)
	if binaryData {
		for i := range n {
			body = binary.NativeEndian.AppendUint32(body, uint32(i))
		}
	}
	whole = fmt.Appendf(nil, "POST /v2/models/same/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nInference-Header-Content-Length: %d\r\n\r\n%s", len(body), len(text), body)
	return text, whole
}

// attacker sends arbitrary requests.
type attacker struct {
	t       *testing.T
	address string
	admin   string
	client  http.Client
}

func (r *running) attacker() *attacker {
	return &attacker{t: r.t, address: r.addr, admin: r.admin, client: http.Client{Timeout: time.Minute}}
}

// post sends a body, and returns the status and the response.
func (a *attacker) post(path, body string) (int, string) {
	a.t.Helper()
	status, said, err := a.tryPost(path, body)
	require.NoError(a.t, err)
	return status, said
}

// tryPost is like post but can be called from any goroutine.
func (a *attacker) tryPost(path, body string) (int, string, error) {
	resp, err := a.client.Post("http://"+a.address+path, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(said), err
}

// lives checks that the server still serves requests.
func (a *attacker) lives() {
	a.t.Helper()
	_, whole := wire(3, "", "")
	c, err := net.Dial("tcp", a.address)
	require.NoError(a.t, err)
	defer c.Close()
	require.NoError(a.t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = c.Write(whole)
	require.NoError(a.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(a.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(a.t, err)
	require.Equal(a.t, 200, resp.StatusCode, "%s", body)
	require.True(a.t, bytes.HasSuffix(body, []byte{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0}))
}

// gauge returns a value of the service's metrics.
func (a *attacker) gauge(name string) float64 {
	a.t.Helper()
	v, err := a.tryGauge(name)
	require.NoError(a.t, err)
	return v
}

// tryGauge is like gauge but can be called from any goroutine.
func (a *attacker) tryGauge(name string) (float64, error) {
	resp, err := a.client.Get("http://" + a.admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// idle waits until no request and no memory is in use.
func (a *attacker) idle() {
	a.t.Helper()
	require.Eventually(a.t, func() bool {
		for _, name := range []string{"inference_requests_in_flight", "inference_region_leases"} {
			if v, err := a.tryGauge(name); err != nil || v != 0 {
				return false
			}
		}
		return true
	}, soon, 20*time.Millisecond)
}

// shared creates shared memory of n bytes, like a client.
func shared(t *testing.T, n int) (key string, f *os.File) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "usmbridge-attack-")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no POSIX shared memory: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = os.Remove(f.Name()), f.Close() })
	require.NoError(t, f.Truncate(int64(n)))
	return filepath.Base(f.Name()), f
}

// checkRefusal checks that a body is an error without details of the server.
func checkRefusal(t *testing.T, body string) {
	t.Helper()
	var e struct{ Error string }
	require.NoError(t, json.Unmarshal([]byte(body), &e), "%s", body)
	require.NotEmpty(t, e.Error)
	for _, inside := range []string{"goroutine", ".go:", "0x", "memmgr", "segment", "Traceback", "/proc", "/usr", "errno", "permission denied", "no such file"} {
		require.NotContains(t, e.Error, inside)
	}
	require.Less(t, len(body), 1000)
}

// Regions are truncated, unregistered and registered again while requests use them: the server
// continues, and each response is correct or a refusal.
func TestAttackTruncation(t *testing.T) {
	for _, workers := range []string{"0", "1"} { // used in place, and copied
		t.Run("workers "+workers, func(t *testing.T) { attackTruncation(t, workers) })
	}
}

func attackTruncation(t *testing.T, workers string) {
	r := start(t, "-shm-prefix", "usmbridge-attack-", "-workers", workers, "-models", modelsDir(t, map[string]string{"same": same}))
	a := r.attacker()
	const n = 1 << 18 // elements; input and output
	key, f := shared(t, 8*n)
	ramp := make([]byte, 0, 4*n)
	for i := range n {
		ramp = binary.NativeEndian.AppendUint32(ramp, uint32(i))
	}
	register := fmt.Sprintf(`{"key":"%s","byte_size":%d}`, key, 8*n)
	text, _ := wire(n, fmt.Sprintf(`"shared_memory_region":"r","shared_memory_byte_size":%d`, 4*n),
		fmt.Sprintf(`"outputs":[{"name":"y","parameters":{"shared_memory_region":"r","shared_memory_byte_size":%d,"shared_memory_offset":%d}}],`, 4*n, 4*n))
	text = bytes.Replace(text, []byte(`"parameters":{"binary_data_output":true}`), []byte(`"parameters":{}`), 1)
	var served, refused atomic.Int64
	stop := make(chan struct{})
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := http.Post("http://"+a.address+"/v2/models/same/infer", "application/json", bytes.NewReader(text))
				if err != nil {
					t.Error(err)
					return
				}
				said, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				switch {
				case resp.StatusCode == 200:
					served.Add(1)
				case resp.StatusCode == 400, resp.StatusCode == 404:
					refused.Add(1)
				default:
					t.Errorf("%d %s", resp.StatusCode, said)
					return
				}
			}
		})
	}
	for round := range 30 {
		require.NoError(t, f.Truncate(8*n))
		require.NoError(t, testenv.ErrorOf(f.WriteAt(ramp, 0)))
		status, body := a.post("/v2/systemsharedmemory/region/r/register", register)
		require.Equal(t, 200, status, body)
		before := served.Load()
		require.Eventually(t, func() bool { return served.Load() > before+4 }, time.Minute, time.Millisecond, "requests on complete memory are served")
		got := make([]byte, 4*n)
		require.NoError(t, testenv.ErrorOf(f.ReadAt(got, 4*n)))
		require.True(t, bytes.Equal(ramp, got), "the response is correct")
		require.NoError(t, f.Truncate(int64(rand.IntN(8*n))))
		before = refused.Load()
		require.Eventually(t, func() bool { return refused.Load() > before+4 }, time.Minute, time.Millisecond, "requests on truncated memory are refused")
		require.Eventually(t, func() bool {
			status, body, err := a.tryPost("/v2/systemsharedmemory/region/r/unregister", "")
			if err != nil || status != 200 && status != 409 {
				t.Errorf("round %d: %d %s %v", round, status, body, err)
			}
			return status == 200
		}, time.Minute, time.Millisecond, "the region is unregistered when no request uses it")
	}
	close(stop)
	working.Wait()
	a.idle()
	a.lives()
	require.Zero(t, a.gauge("inference_regions"))
	require.NoError(t, r.stop(), "%s", r.log)
	require.Contains(t, r.log.String(), "no memory is in use at the end")
}
