//go:build cgo && linux

package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
)

// TestMissingBodies checks for all paths that a body that does not arrive does not keep its
// connection open.
func TestMissingBodies(t *testing.T) {
	v := serve(t, setup{}) // with enough time for the headers
	for _, head := range []string{
		"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /v2/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"POST /v2/models/none/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
		"POST /v2/models/identity/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /v2/cudasharedmemory/unregister HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			c := v.dial()
			c.send(head)
			c.answer() // within one minute
			require.Error(t, testenv.ErrorOf(c.in.ReadByte()), "the connection is still open")
		})
	}
}

// TestEndOfCompressedBodies checks that bytes after the compressed data are refused, and that missing
// bytes, up to the Content-Length, keep neither the connection nor the memory of the request.
func TestEndOfCompressedBodies(t *testing.T) {
	v := serve(t, setup{limits: func(l *limits) { l.grace = time.Second }})
	text := binaryFloats(1)
	whole := string(compressed(t, append([]byte(text), floats(1)...)))
	head := func(more int) string {
		return fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n%s: %d\r\n\r\n",
			len(whole)+more, headerLength, len(text))
	}
	t.Run("extra bytes", func(t *testing.T) {
		t.Parallel()
		for _, more := range []int{1, 100, 10000} {
			c := v.dial()
			c.send(head(more) + whole + strings.Repeat("x", more))
			require.Equal(t, 400, c.answer().StatusCode)
		}
	})
	t.Run("missing bytes", func(t *testing.T) {
		t.Parallel()
		c := v.dial()
		c.send(head(100) + whole)
		require.Equal(t, 408, c.answer().StatusCode)
		require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
	})
}

// TestUnreadContinue checks that a client that sends Expect: 100-continue and does not
// read the responses is disconnected.
func TestUnreadContinue(t *testing.T) {
	e := enginetest.New(t, engine.Options{Log: quiet()}, enginetest.Identity())
	h := New(e, nil, nil)
	h.limits.grace = 500 * time.Millisecond
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path) // each write uses buffer space, no matter how small it is
	require.NoError(t, err)
	server := h.Server()
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	text := binaryFloats(1)
	request := fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s1234",
		len(text)+4, headerLength, len(text), text)
	var ended sync.WaitGroup
	for range 8 {
		c := testenv.Must(net.Dial("unix", path))(t)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
		ended.Go(func() {
			for err == nil {
				_, err = io.WriteString(c, request)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the server keeps the connection")
			}
		})
	}
	ended.Wait()
	require.Eventually(t, func() bool { return e.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
}

// TestWaitForMemory checks that the time limit for a body starts when the server
// starts to read it, not while the request waits for memory.
func TestWaitForMemory(t *testing.T) {
	const limit = 64 << 20
	grace := 2 * time.Second
	v := serve(t, setup{engine: engine.Options{Memory: engine.Pool{Limit: limit}}, limits: func(l *limits) { l.grace = grace }})
	holder := testenv.Must(v.engine.Begin(t.Context(), "identity", ""))(t)
	defer holder.End()
	in := testenv.Must(holder.Input("x", "FP32", []int64{limit / 12}))(t)
	require.NoError(t, in.Fill(func(p []byte) error { return nil })) // the output takes the same amount
	const n = limit / 16
	text := binaryFloats(n)
	c := v.dial()
	c.send(fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n", len(text)+4*n, headerLength, len(text)))
	go func() { _, _ = c.Write(append([]byte(text), make([]byte, 4*n)...)) }()
	require.Eventually(t, func() bool { return v.engine.Stats().Requests == 2 }, 30*time.Second, time.Millisecond)
	time.Sleep(grace + grace/2)
	holder.End()
	require.Equal(t, 200, c.answer().StatusCode)
}

// TestJSONLimit checks that the JSON of all requests is bounded, and that small JSON is always accepted.
func TestJSONLimit(t *testing.T) {
	v := serve(t, setup{})
	body := func(n int) string {
		return fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d],"datatype":"FP32","data":[0%s]}]}`, n, strings.Repeat(",0", n-1))
	}
	long := body(spared)
	require.Greater(t, len(long), spared)
	require.True(t, v.handler.heap.TryAcquire(maxJSON-1))
	require.Contains(t, v.inference("identity", long, nil).message(t, http.StatusServiceUnavailable), "JSON")
	require.Equal(t, 200, v.inference("identity", body(1), nil).status)
	v.handler.heap.Release(maxJSON - 1)
	require.Equal(t, 200, v.inference("identity", long, nil).status)
}

// TestJSONOfLoads checks that the JSON of a request is not charged while its model is loaded.
func TestJSONOfLoads(t *testing.T) {
	var v *service
	free := make(chan bool, 1)
	v = serve(t, setup{engine: engine.Options{Load: func(context.Context, string) error {
		free <- uncharged(v.handler, maxJSON)
		return nil
	}}})
	long := []byte("{}" + strings.Repeat(" ", spared))
	require.Equal(t, 200, v.do("POST", "/v2/repository/models/identity/load", long).status)
	require.True(t, <-free)
}
