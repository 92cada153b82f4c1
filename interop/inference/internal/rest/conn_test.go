//go:build cgo && linux

package rest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
)

// TestGate checks that the total size of JSON in flight is bounded.
func TestGate(t *testing.T) {
	m, began, release := enginetest.Blocking("identity")
	v := serve(t, setup{models: []*enginetest.Model{m, enginetest.Sum()}, limits: func(l *limits) { l.json, l.grace = 1<<16, time.Minute }})
	const free = 1 << 16
	require.True(t, v.handler.heap.TryAcquire(maxJSON-free))
	c := v.dial()
	text := binaryFloats(1)
	half := strings.Repeat(" ", 40000)
	c.send(fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s", len(half)+len(text)+4, headerLength, len(half)+len(text), half))
	require.Eventually(t, func() bool { return !uncharged(v.handler, free) }, 30*time.Second, time.Millisecond)
	r := v.do("POST", "/v2/models/sum/infer", []byte(half))
	require.Contains(t, r.message(t, 503), "JSON")
	require.Equal(t, "1", r.header.Get("Retry-After"))
	c.send(text + string(floats(1)))
	<-began
	require.True(t, uncharged(v.handler, free), "the JSON is gone before the model runs")
	v.handler.heap.Release(maxJSON - free)
	close(release)
	require.Equal(t, 200, c.answer().StatusCode)
}

// link is a raw client connection.
type link struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func (v *service) dial() *link {
	c, err := net.Dial("tcp", v.address)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { c.Close() })
	require.NoError(v.t, c.SetDeadline(time.Now().Add(time.Minute)))
	return &link{v.t, c, bufio.NewReader(c)}
}

func (c *link) send(text string) {
	c.t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(c.t, err)
}

func (c *link) answer() *http.Response {
	c.t.Helper()
	r, err := http.ReadResponse(c.in, nil)
	require.NoError(c.t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(c.t, err)
	r.Body = io.NopCloser(bytes.NewReader(b))
	return r
}

// TestSlowBodies checks that a request ends and releases its memory if its body arrives too slowly
// or not at all.
func TestSlowBodies(t *testing.T) {
	v := serve(t, setup{limits: func(l *limits) { l.grace = 3 * time.Second }})
	text := binaryFloats(1000)
	head := fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n", len(text)+4000, headerLength, len(text))
	for what, sent := range map[string]string{"no body": head, "half the JSON": head + text[:10], "the JSON": head + text, "half the tensor": head + text + strings.Repeat("x", 2000)} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := v.dial()
			c.send(sent)
			r := c.answer()
			require.Equal(t, 408, r.StatusCode)
			require.True(t, r.Close, "the connection is of no use any more")
			require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
		})
	}
	t.Run("half the headers", func(t *testing.T) {
		t.Parallel()
		c := v.dial()
		c.send("POST /v2/models/identity/inf")
		said, err := io.ReadAll(c.in)
		require.NoError(t, err, "slow headers end the connection")
		require.NotContains(t, string(said), " 200 ")
	})
}

// TestDisconnects checks that clients that disconnect or half-close at any point leave no state.
func TestDisconnects(t *testing.T) {
	m, began, _ := enginetest.Blocking("blocking")
	v := serve(t, setup{models: []*enginetest.Model{m, enginetest.Identity()}})
	text := binaryFloats(1000)
	request := func(model string) string {
		return fmt.Sprintf("POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n", model, len(text)+4000, headerLength, len(text)) + text + strings.Repeat("x", 4000)
	}
	for _, half := range []bool{false, true} {
		for _, n := range []int{1, 20, 120, 150, 200, 300, 1000, 4000} {
			whole := request("identity")
			n = min(n, len(whole)-1)
			c := v.dial()
			c.send(whole[:n])
			if half {
				require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
				_, _ = io.ReadAll(c)
			}
			require.NoError(t, c.Close())
		}
		c := v.dial()
		c.send(request("blocking"))
		<-began
		if half {
			require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
		} else {
			require.NoError(t, c.Close())
		}
		require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
	}
	// A client that does not read its response is disconnected, and the memory is released.
	v = serve(t, setup{limits: func(l *limits) { l.grace, l.perMiB = 100*time.Millisecond, time.Millisecond }})
	const n = 16 << 20
	c := v.dial()
	text = binaryFloats(n)
	c.send(fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s", len(text)+4*n, headerLength, len(text), text))
	_, _ = c.Write(make([]byte, 4*n)) // the server may close the connection meanwhile
	require.Eventually(t, func() bool { return v.engine.Stats().Requests == 0 }, 30*time.Second, time.Millisecond)
}

// TestKeepAlive checks that a connection serves many requests, including invalid ones.
func TestKeepAlive(t *testing.T) {
	v := serve(t, setup{})
	c := v.dial()
	text := binaryFloats(1)
	good := fmt.Sprintf("POST /v2/models/identity/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s: %d\r\n\r\n%s1234", len(text)+4, headerLength, len(text), text)
	bad := fmt.Sprintf("POST /v2/models/nothing/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 100000, strings.Repeat("x", 100000))
	for range 3 {
		for _, s := range []struct {
			text   string
			status int
		}{{good, 200}, {bad, 404}, {"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", 200}, {"GET /v2?x=%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200}} {
			c.send(s.text)
			require.Equal(t, s.status, c.answer().StatusCode)
		}
	}
	c.send("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.GreaterOrEqual(t, c.answer().StatusCode, 400)
}
