package main

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight"
	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/usmarray"
)

// If USMFLIGHT_MAIN is set, the test binary runs the program instead of the tests.
func TestMain(m *testing.M) {
	if os.Getenv("USMFLIGHT_MAIN") != "" {
		main()
		return
	}
	memtest.Main(m)
}

// start starts the program and returns the location at which it listens.
func start(t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "USMFLIGHT_MAIN=1")
	cmd.Stderr = os.Stderr
	out := testenv.Must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := testenv.Must(bufio.NewReader(out).ReadString('\n'))(t)
	at, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	return cmd, at
}

// The program prints its location, enforces its limits and its tokens, and exits with status 0 on
// SIGTERM.
func TestProgram(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("word\n"), 0o600))
	for _, listen := range []string{"grpc+tcp://127.0.0.1:0", "grpc+unix://" + filepath.Join(t.TempDir(), "s")} {
		cmd, at := start(t, "-listen", listen, "-limit", "33554432", "-max-tensors", "1", "-token-file", tokens)
		pool := memmgr.NewPool(memmgr.Host())
		c := testenv.Must(flight.Dial(at, flight.ClientOptions{Token: "word"}))(t)
		a := testenv.Must(usmarray.Full(pool, usmarray.Float64, []int{1000, 100}, 2.5))(t)
		require.NoError(t, c.Put(t.Context(), "x", a))
		require.ErrorContains(t, c.Put(t.Context(), "z", a), "limit reached")
		large := testenv.Must(usmarray.New(pool, usmarray.Float64, []int{1000, 10_000}))(t)
		require.ErrorContains(t, c.Put(t.Context(), "x", large), "limit 32 MiB")
		large.Release()
		got := testenv.Must(c.Get(t.Context(), "x", pool))(t)
		require.Equal(t, 2.5, testenv.Must(got.At(999, 99))(t))
		got.Release()
		a.Release()
		require.NoError(t, c.Close())
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
		// gRPC may still hold messages of the refused tensor.
		require.Eventually(t, func() bool { n, _ := codec.Outstanding(); return n == 0 }, time.Minute, time.Millisecond)
		require.NoError(t, pool.Close())
	}
}

func TestArguments(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("word\n"), 0o600))
	for _, c := range []struct {
		args []string
		text string
	}{
		{nil, "-listen is missing"},
		{[]string{"-listen", "somewhere"}, "is not a location"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-tls-cert", "x"}, "given together"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-tls-cert", "x", "-tls-key", "y"}, "no such file"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-token-file", "/nowhere"}, "no such file"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-memory", "far"}, "must be plain, shared, host or device"},
		{[]string{"-listen", "grpc+tls://127.0.0.1:0"}, "needs a certificate"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "more"}, "unexpected argument"},
		{[]string{"-limit", "much"}, "invalid value"},
		{[]string{"-listen", "grpc+tcp://127.0.0.1:0", "-max-tensors", "0"}, "-max-tensors is 0"},
		// TLS or tokens are missing; -insecure does not permit unencrypted tokens.
		{[]string{"-listen", "grpc+tcp://0.0.0.0:0"}, "-insecure"},
		{[]string{"-listen", "grpc+tcp://:0", "-token-file", tokens}, "-insecure"},
		{[]string{"-listen", "grpc+tcp://0.0.0.0:0", "-tls-cert", "x", "-tls-key", "y"}, "-insecure"},
		{[]string{"-listen", "grpc+tcp://0.0.0.0:0", "-token-file", tokens, "-insecure"}, "does not encrypt tokens"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), c.args, &out, &out), c.text)
	}
}

// With -insecure the program serves an address that other machines can reach, to every client.
func TestInsecure(t *testing.T) {
	cmd, at := start(t, "-listen", "grpc+tcp://0.0.0.0:0", "-insecure")
	location := testenv.Must(flight.ParseLocation(at))(t)
	_, port, err := net.SplitHostPort(location.Address)
	require.NoError(t, err)
	c := testenv.Must(flight.Dial("grpc+tcp://127.0.0.1:"+port, flight.ClientOptions{}))(t)
	require.NoError(t, testenv.ErrorOf(c.Stats(t.Context())))
	require.NoError(t, c.Close())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}
