package rpc

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/interop/inference/internal/clienttest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/enginetest"
	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
)

// TestTritonclient checks that an unmodified tritonclient can use the gRPC server.
func TestTritonclient(t *testing.T) {
	regions := region.New(region.Options{Prefix: "usmbridge_clients_"})
	b := newTestbed(t, engine.Options{Version: "1", Regions: regions}, nil, enginetest.Identity())
	cmd := clienttest.Command(t, filepath.Join("..", "..", "testdata", "clients"), "-m", "pytest", "-q", "-p", "no:cacheprovider",
		"test_protocol.py", "test_regions.py")
	cmd.Env = append(cmd.Env, "SERVICE_HTTP=", "SERVICE_GRPC="+b.at)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	b.drained(t)
	require.NoError(t, regions.Close())
}
