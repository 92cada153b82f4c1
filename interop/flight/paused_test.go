//go:build unix

package flight

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// peerEnv is an environment variable with the role of the peer process: "serve", "get" or "put". The
// variable with the suffix _AT has the location.
const peerEnv = "USMBRIDGE_FLIGHT_TEST_PEER"

// TestPausedPeer is the peer process that the other tests stop. It prints READY in the middle of its call
// and then blocks.
func TestPausedPeer(t *testing.T) {
	do := os.Getenv(peerEnv)
	if do == "" {
		t.Skip("runs only as the peer process of TestStoppedClient and TestStoppedServer")
	}
	at := os.Getenv(peerEnv + "_AT")
	pool := memmgr.NewPool(memmgr.Host())
	if do == "serve" {
		s := testenv.Must(NewServer(ServerOptions{Memory: pool}))(t)
		where := testenv.Must(ParseLocation(at))(t)
		l, _, err := s.Listen(where)
		require.NoError(t, err)
		go func() { _ = s.Serve(l) }()
	} else {
		c := testenv.Must(Dial(at, ClientOptions{}))(t)
		switch do {
		case "get":
			s := testenv.Must(c.rpc.DoGet(context.Background(), &flight.Ticket{Ticket: []byte("big")}))(t)
			require.NoError(t, testenv.ErrorOf(s.Recv()))
		case "put":
			_, schema := floats(t, map[string]string{RowsKey: "100000"})
			s := testenv.Must(c.rpc.DoPut(context.Background()))(t)
			require.NoError(t, s.SendMsg(&data{descriptor: path("half"), header: schemaHeader(schema)}))
			require.NoError(t, s.SendMsg(batchOf(t, 1000)))
		}
	}
	fmt.Println("READY")
	select {} // the parent process kills this one
}

// peer starts the peer process and returns when its call has begun.
func peer(t *testing.T, do, at string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPausedPeer$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), peerEnv+"="+do, peerEnv+"_AT="+at)
	out := testenv.Must(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // SIGKILL also ends a stopped process
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "READY" {
			return cmd
		}
		t.Log(lines.Text())
	}
	t.Fatal("the peer process ended early")
	return nil
}

// If a client is stopped during a get or a put, the server closes its connection after the
// keepalive time and releases the memory of the call. Meanwhile it serves other clients.
func TestStoppedClient(t *testing.T) {
	for _, do := range []string{"get", "put"} {
		t.Run(do, func(t *testing.T) {
			// Long enough for running clients to answer probes on a machine under load.
			b := newTestbed(t, func(o *ServerOptions) { o.Keepalive = 4 * time.Second })
			big := numbers(t, b.mine, 12<<20)
			require.NoError(t, b.client.Put(t.Context(), "big", big))
			kept := b.pool.Stats().RequestedBytes.Current
			other := peer(t, do, b.at.String())
			require.Eventually(t, func() bool {
				return b.server.Stats().Streams == 1 && (do == "get" || b.pool.Stats().RequestedBytes.Current > kept)
			}, time.Minute, time.Millisecond)
			require.NoError(t, other.Process.Signal(syscall.SIGSTOP))

			small := numbers(t, b.mine, 3000)
			for i := range 5 {
				name := strconv.Itoa(i)
				require.NoError(t, b.client.Put(t.Context(), name, small))
				sameCopy(t, small, testenv.Must(b.client.Get(t.Context(), name, b.mine))(t))
				require.NoError(t, b.client.Free(t.Context(), name))
			}
			require.Eventually(t, func() bool { return b.server.Stats().Streams == 0 }, time.Minute, time.Millisecond)
			waitReleased(t)
			require.Eventually(t, func() bool { return b.pool.Stats().RequestedBytes.Current == kept }, time.Minute, time.Millisecond)
			require.Equal(t, []string{"big"}, b.server.Store().Names(""))
			require.NoError(t, b.client.Free(t.Context(), "big"))
			require.Eventually(t, func() bool { return b.pool.Stats().RequestedBytes.Current == 0 }, time.Minute, time.Millisecond, "no call reads the tensor")
		})
	}
}

// If a server is stopped, the client's calls end with their contexts, and the client continues after
// the server does. gRPC releases its buffers when the server continues or when the client's
// keepalive closes the connection. The latter takes 30 s, so the test waits for it only if
// USMBRIDGE_HUNT is set.
func TestStoppedServer(t *testing.T) {
	mine := newPool(t)
	at := "grpc+unix://" + t.TempDir() + "/s"
	other := peer(t, "serve", at)
	c := dial(t, at, ClientOptions{})
	big := numbers(t, mine, 12<<20)
	require.NoError(t, c.Put(t.Context(), "big", big))
	held := mine.Stats().RequestedBytes.Current
	require.NoError(t, other.Process.Signal(syscall.SIGSTOP))
	var state syscall.WaitStatus
	_, err := syscall.Wait4(other.Process.Pid, &state, syscall.WUNTRACED, nil) // waits until all threads have stopped
	require.NoError(t, err)
	require.True(t, state.Stopped(), "%#x", state)
	for op, call := range map[string]func(ctx context.Context) error{
		"put": func(ctx context.Context) error { return c.Put(ctx, "big", big) },
		"get": func(ctx context.Context) error { return testenv.ErrorOf(c.Get(ctx, "big", mine)) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := call(ctx)
		cancel()
		require.Equal(t, codes.DeadlineExceeded, status.Code(err), "%s: %v", op, err)
	}
	if os.Getenv("USMBRIDGE_HUNT") != "" {
		waitReleased(t)
	}
	require.NoError(t, other.Process.Signal(syscall.SIGCONT))
	waitReleased(t)
	require.Equal(t, held, mine.Stats().RequestedBytes.Current)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := c.Get(ctx, "big", mine)
	for status.Code(err) == codes.Unavailable && ctx.Err() == nil { // the connection was closed; the client reconnects
		got, err = c.Get(ctx, "big", mine)
	}
	require.NoError(t, err)
	sameCopy(t, big, got)
}
