package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/inference/internal/clienttest"
)

// clients runs tests of unmodified clients, in a directory of testdata, against a server.
func clients(t *testing.T, r *running, dir string, tests ...string) {
	t.Helper()
	cmd := clienttest.Command(t, filepath.Join("..", "..", "testdata", dir), append([]string{"-m", "pytest", "-q", "-p", "no:cacheprovider"}, tests...)...)
	cmd.Env = append(cmd.Env, "SERVICE_HTTP="+r.addr, "SERVICE_GRPC="+r.grpc, "REST="+r.addr, "GRPC="+r.grpc)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	t.Logf("%s", lines[len(lines)-1])
}

// ownModels returns a directory with the models of testdata that only this user can write to.
func ownModels(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := testenv.Must(filepath.Glob(filepath.Join("..", "..", "testdata", "models", "*.py")))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		text := testenv.Must(os.ReadFile(file))(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600))
	}
	return dir
}

// TestTritonclient runs every part of the protocol that tritonclient implements, over HTTP and
// gRPC, with the built-in models and with models of testdata, and checks that no memory is in use
// afterwards.
func TestTritonclient(t *testing.T) {
	for name, c := range map[string]struct{ args, tests []string }{
		"built-in models": {nil, []string{"test_protocol.py", "test_regions.py", "test_builtin.py"}},
		"own models":      {[]string{"-models", ownModels(t)}, []string{"test_protocol.py", "test_regions.py", "test_models.py"}},
		"in workers":      {[]string{"-models", ownModels(t), "-workers", "2"}, []string{"test_protocol.py", "test_regions.py", "test_models.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, append(c.args, "-shm-prefix", "usmbridge_clients_")...)
			clients(t, r, "clients", c.tests...)
			require.NoError(t, r.stop(), "%s", r.log)
			require.Contains(t, r.log.String(), "no memory is in use at the end")
		})
	}
}

// TestKServe runs KServe's REST and gRPC clients.
func TestKServe(t *testing.T) {
	r := start(t)
	clients(t, r, "kserve", "test_clients.py")
	require.NoError(t, r.stop(), "%s", r.log)
	require.Contains(t, r.log.String(), "no memory is in use at the end")
}
