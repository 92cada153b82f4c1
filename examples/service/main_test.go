//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/workers"
)

func TestMain(m *testing.M) {
	workers.Main()
	// In builds with -race, os.Exit runs the destructors of SYCL's libraries, which crash after dpnp was used.
	syscall.Exit(m.Run())
}

// The service scales values in its own process, in workers, and in workers without SYCL. It refuses invalid
// requests, exports metrics and ends without a leak.
func TestService(t *testing.T) {
	testpython.Need(t, "numpy", "numba")
	t.Run("process", func(t *testing.T) { testService(t, 0) })
	t.Run("workers", func(t *testing.T) { testService(t, 2) })
	t.Run("workers without SYCL", func(t *testing.T) {
		t.Setenv("USMBRIDGE_SYCL", "off")
		testService(t, 1)
	})
}

func testService(t *testing.T, processes int) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, options{"127.0.0.1:0", 1 << 20, time.Minute, processes}, func(a net.Addr) { ready <- a })
	}()
	var url string
	select {
	case a := <-ready:
		url = "http://" + a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	post := func(path string, body []byte) (int, []byte) {
		resp, err := http.Post(url+path, "application/octet-stream", bytes.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, text
	}
	in, err := binary.Append(nil, binary.NativeEndian, []float32{3, 5, 4})
	require.NoError(t, err)
	for _, path := range []string{"/scale", "/scale-on-device"} {
		status, out := post(path, in)
		require.Equal(t, http.StatusOK, status, "%s", out)
		got := make([]float32, 3)
		_, err = binary.Decode(out, binary.NativeEndian, got)
		require.NoError(t, err)
		require.Equal(t, []float32{0, 1, 0.5}, got)
	}
	for _, bad := range [][]byte{nil, make([]byte, 3), make([]byte, 1<<20)} {
		status, _ := post("/scale", bad)
		require.Equal(t, http.StatusBadRequest, status)
	}
	resp, err := http.Get(url + "/ready")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Eventually(t, func() bool { // a worker reports the release of arrays soon after its answer
		resp, err := http.Get(url + "/debug/vars")
		require.NoError(t, err)
		defer resp.Body.Close()
		var vars struct {
			Calls          struct{ Calls int }
			AllocatedBytes int `json:"allocated_bytes"`
		}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&vars))
		require.Equal(t, 2, vars.Calls.Calls)
		return vars.AllocatedBytes == 0
	}, time.Minute, time.Millisecond)
	cancel()
	require.NoError(t, <-ended, "a buffer that was not released is an error of the pool")
}
