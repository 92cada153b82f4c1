//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred/peercredtest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/rpc/pb"
)

// registerRPC registers a region by gRPC.
func registerRPC(t *testing.T, conn *grpc.ClientConn, name, key string, size uint64) error {
	t.Helper()
	return conn.Invoke(t.Context(), "/inference.GRPCInferenceService/SystemSharedMemoryRegister",
		&pb.SystemSharedMemoryRegisterRequest{Name: name, Key: key, ByteSize: size}, &pb.SystemSharedMemoryRegisterResponse{})
}

// TestSharedMemoryOverTCP checks that a TCP client cannot register shared memory without a prefix,
// because any user of the machine can connect to a TCP address.
func TestSharedMemoryOverTCP(t *testing.T) {
	key, _ := shared(t, 4096)
	models := modelsDir(t, map[string]string{"same": same})
	r := start(t, "-models", models)
	conn := testenv.Must(grpc.NewClient(r.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	code, body := r.attacker().post("/v2/systemsharedmemory/region/r/register", `{"key":"`+key+`","byte_size":4096}`)
	require.Equal(t, 400, code, body)
	require.Contains(t, body, "-shm-prefix")
	checkRefusal(t, body)
	err := registerRPC(t, conn, "g", key, 4096)
	require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
	require.Contains(t, err.Error(), "-shm-prefix")
	require.NoError(t, r.stop(), "%s", r.log)

	r = start(t, "-models", models, "-shm-prefix", "usmbridge-attack-")
	other, f := shared(t, 4096)
	require.NoError(t, os.Rename(f.Name(), "/dev/shm/x"+other))
	t.Cleanup(func() { _ = os.Remove("/dev/shm/x" + other) })
	for key, want := range map[string]int{key: 200, "/" + key: 200, "x" + other: 400, "usmbridge-attack-/../x" + other: 400, "usmbridge-attack-": 400} {
		code, body := r.attacker().post("/v2/systemsharedmemory/region/r/register", `{"key":"`+key+`","byte_size":4096}`)
		require.Equal(t, want, code, "%s: %s", key, body)
		if want == 200 {
			code, body = r.attacker().post("/v2/systemsharedmemory/region/r/unregister", "")
			require.Equal(t, 200, code, body)
		}
	}
	require.NoError(t, r.stop(), "%s", r.log)
}

// TestSharedMemoryOverUnixSocket checks that a client of a Unix socket can register only memory of
// its own user, even if the service runs as root, and cannot use a region of another user.
func TestSharedMemoryOverUnixSocket(t *testing.T) {
	const stranger = 12345
	rest, rpc := peercredtest.Socket(t), peercredtest.Socket(t)
	r := start(t, "-addr", "unix:"+rest, "-grpc", "unix:"+rpc, "-models", modelsDir(t, map[string]string{"same": same}))
	require.NoError(t, os.Chmod(rest, 0o666))
	require.NoError(t, os.Chmod(rpc, 0o666))
	post := func(uid int, path, body string) (int, string) {
		a := &attacker{t: t, address: "localhost", client: http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(context.Context, string, string) (net.Conn, error) { return peercredtest.Dial(uid, rest) }}}}
		return a.post(path, body)
	}
	dial := func(uid int) *grpc.ClientConn {
		conn := testenv.Must(grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return peercredtest.Dial(uid, rpc) })))(t)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	roots, _ := shared(t, 4096)
	open, of := shared(t, 4096)
	require.NoError(t, of.Chmod(0o666))
	theirs, tf := shared(t, 4096)
	require.NoError(t, tf.Chown(stranger, stranger))
	const at = "/v2/systemsharedmemory/region/"
	register := func(key string) string { return `{"key":"` + key + `","byte_size":4096}` }

	for _, key := range []string{roots, open} {
		code, body := post(stranger, at+"r/register", register(key))
		require.Equal(t, 400, code, body)
		checkRefusal(t, body)
		err := registerRPC(t, dial(stranger), "r", key, 4096)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	}
	code, body := post(0, at+"r/register", register(theirs))
	require.Equal(t, 400, code, body)
	code, body = post(stranger, at+"theirs/register", register(theirs))
	require.Equal(t, 200, code, body)
	require.NoError(t, registerRPC(t, dial(stranger), "again", theirs, 4096))
	code, body = post(0, at+"roots/register", register(roots))
	require.Equal(t, 200, code, body)

	use := func(name string) string {
		text, _ := wire(3, fmt.Sprintf(`"shared_memory_region":"%s","shared_memory_byte_size":12`, name), "")
		return string(text)
	}
	for _, c := range []struct {
		uid  int
		name string
		want int
	}{{stranger, "theirs", 200}, {stranger, "roots", 404}, {0, "roots", 200}, {0, "theirs", 404}} {
		code, body := post(c.uid, "/v2/models/same/infer", use(c.name))
		require.Equal(t, c.want, code, "%v: %s", c, body)
		if c.want == 404 {
			code, body = post(c.uid, at+c.name+"/unregister", "")
			require.Equal(t, 404, code, "%v: %s", c, body)
		}
	}
	code, body = post(stranger, "/v2/systemsharedmemory/unregister", "")
	require.Equal(t, 200, code, body)
	code, body = post(stranger, "/v2/models/same/infer", use("theirs"))
	require.Equal(t, 404, code, body)
	code, body = post(0, "/v2/models/same/infer", use("roots"))
	require.Equal(t, 200, code, body)
	require.NoError(t, r.stop(), "%s", r.log)
}

// TestSparseSharedMemory checks that regions have a fixed share of -limit. The kernel charges pages
// of sparse memory to the process that touches them first, which can be the server.
func TestSparseSharedMemory(t *testing.T) {
	const part = 16 << 20 // the share of regions in the 64 MiB
	r := start(t, "-limit", "64Mi", "-shm-prefix", "usmbridge-attack-", "-models", modelsDir(t, map[string]string{"same": same}))
	a := r.attacker()
	register := func(size int) (int, string) {
		key, _ := shared(t, size)
		return a.post("/v2/systemsharedmemory/region/"+key+"/register", fmt.Sprintf(`{"key":"%s","byte_size":%d}`, key, size))
	}
	code, body := register(1 << 30)
	require.Equal(t, 413, code, body)
	code, body = register(part - 4096)
	require.Equal(t, 200, code, body)
	code, body = register(4097)
	require.Equal(t, 503, code, body)
	checkRefusal(t, body)
	code, body = register(1)
	require.Equal(t, 200, code, body)
	code, body = register(1)
	require.Equal(t, 503, code, body)
	code, body = a.post("/v2/systemsharedmemory/unregister", "")
	require.Equal(t, 200, code, body)
	code, body = register(part)
	require.Equal(t, 200, code, body)
	require.EqualValues(t, 64<<20, part+a.gauge(`inference_memory_limit_bytes{pool="tensors"}`)+a.gauge(`inference_memory_limit_bytes{pool="calls"}`)+
		a.gauge(`inference_memory_limit_bytes{pool="results"}`))
	require.NoError(t, r.stop(), "%s", r.log)
}
