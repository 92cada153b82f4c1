package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/examples/service/internal/engine"
)

// A body that never comes does not keep its connection, whatever the path makes of it.
func TestBodiesThatNeverCome(t *testing.T) {
	v := serve(t, setup{}) // whose clients have long enough for their headers
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
			c.answer() // within the minute that the connection has
			_, err := c.in.ReadByte()
			require.Error(t, err, "it is closed")
		})
	}
}

// A client that has to wait for memory is not slow: its time begins when it is read.
func TestWaitingIsNotSlowness(t *testing.T) {
	const limit = 64 << 20
	grace := 2 * time.Second
	v := serve(t, setup{engine: engine.Options{Limit: limit}, rest: Options{Grace: grace}})
	holder, err := v.engine.Begin(t.Context(), "holder", "identity", "")
	require.NoError(t, err)
	defer holder.End()
	in, err := holder.Input("x", "FP32", []int64{limit / 12})
	require.NoError(t, err)
	require.NoError(t, in.Fill(func(p []byte) error { return nil })) // and as much for the output
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

// What is kept of a request beyond its JSON is bounded.
func TestLongTexts(t *testing.T) {
	v := serve(t, setup{})
	long := strings.Repeat("i", 1<<20)
	body := strings.Replace(binaryFloats(1), "{", `{"id":"`+long+`",`, 1)
	require.Contains(t, v.inference("identity", body, floats(1)).message(t, http.StatusBadRequest), "id")
	body = strings.Replace(binaryFloats(1), "{", `{"`+long+`":1,"\u0069d":"7",`, 1)
	require.Equal(t, 200, v.inference("identity", body, floats(1)).status)
}

func TestGateOfTenants(t *testing.T) {
	g := gate{limit: 1000 << 10, each: 750 << 10}
	require.NoError(t, g.take("a", 700<<10, 0))
	require.Error(t, g.take("a", 100<<10, 0))
	require.NoError(t, g.take("a", 1000, 0), "what is small is always taken")
	require.NoError(t, g.take("b", 200<<10, 0))
	require.Error(t, g.take("b", 200<<10, 0))
	g.give("a", 700<<10+1000)
	require.NoError(t, g.take("b", 200<<10, 0))
	g.give("b", 400<<10)
	require.Zero(t, g.inUse())
	require.Empty(t, g.by)
}
