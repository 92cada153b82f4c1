package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/flight"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/usmarray"
)

// The test binary is the program when it is told so.
func TestMain(m *testing.M) {
	if os.Getenv("USMFLIGHT_MAIN") != "" {
		main()
		return
	}
	memtest.Main(m)
}

// start runs the program and returns where it listens.
func start(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "USMFLIGHT_MAIN=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	at, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	return cmd, at
}

// The program says where it listens, keeps to its limit, asks for its tokens, and ends
// well with SIGTERM.
func TestProgram(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("word\n"), 0o600))
	for _, listen := range []string{"grpc+tcp://127.0.0.1:0", "grpc+unix://" + filepath.Join(t.TempDir(), "s")} {
		cmd, at := start(t, "-listen", listen, "-limit", "33554432", "-token-file", tokens)
		pool := memmgr.NewPool(memmgr.Host())
		c, err := flight.Dial(at, flight.ClientOptions{Token: "word"})
		require.NoError(t, err)
		a, err := usmarray.Full(pool, usmarray.Float64, []int{1000, 100}, 2.5)
		require.NoError(t, err)
		require.NoError(t, c.Put(t.Context(), "x", a))
		large, err := usmarray.New(pool, usmarray.Float64, []int{1000, 10_000})
		require.NoError(t, err)
		require.ErrorContains(t, c.Put(t.Context(), "y", large), "limit 32 MiB")
		large.Release()
		got, err := c.Get(t.Context(), "x", pool)
		require.NoError(t, err)
		v, err := got.At(999, 99)
		require.NoError(t, err)
		require.Equal(t, 2.5, v)
		got.Release()
		a.Release()
		require.NoError(t, c.Close())
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
		// What gRPC had in its hands of the tensor that was refused.
		require.Eventually(t, func() bool { n, _ := codec.Outstanding(); return n == 0 }, time.Minute, time.Millisecond)
		require.NoError(t, pool.Close())
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		text string
	}{
		{nil, "-listen is missing"},
		{[]string{"-listen", "somewhere"}, "no location"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-tls-cert", "x"}, "go together"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-tls-cert", "x", "-tls-key", "y"}, "no such file"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-token-file", "/nowhere"}, "no such file"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-memory", "far"}, "there are plain, shared, host and device"},
		{[]string{"-listen", "grpc+tls://127.0.0.1:0"}, "needs a certificate"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "more"}, "unexpected argument"},
		{[]string{"-limit", "much"}, "invalid value"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), c.args, &out, &out), c.text)
	}
}
