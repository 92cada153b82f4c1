package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
)

// The service scales values, refuses invalid requests, exports metrics and ends without a leak.
func TestService(t *testing.T) {
	testpython.Need(t, "numpy")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, "127.0.0.1:0", 1<<20, time.Minute, func(a net.Addr) { ready <- a })
	}()
	var url string
	select {
	case a := <-ready:
		url = "http://" + a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	post := func(body []byte) (int, []byte) {
		resp, err := http.Post(url+"/scale", "application/octet-stream", bytes.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, text
	}
	in, err := binary.Append(nil, binary.NativeEndian, []float32{3, 5, 4})
	require.NoError(t, err)
	status, out := post(in)
	require.Equal(t, http.StatusOK, status, "%s", out)
	got := make([]float32, 3)
	_, err = binary.Decode(out, binary.NativeEndian, got)
	require.NoError(t, err)
	require.Equal(t, []float32{0, 1, 0.5}, got)
	for _, bad := range [][]byte{nil, make([]byte, 3), make([]byte, 1<<20)} {
		status, _ := post(bad)
		require.Equal(t, http.StatusBadRequest, status)
	}
	resp, err := http.Get(url + "/debug/vars")
	require.NoError(t, err)
	defer resp.Body.Close()
	var vars struct {
		Calls          struct{ Calls int }
		AllocatedBytes int `json:"allocated_bytes"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&vars))
	require.Equal(t, 1, vars.Calls.Calls)
	require.Zero(t, vars.AllocatedBytes)
	cancel()
	require.NoError(t, <-ended, "a buffer that was not released is an error of the pool")
}
