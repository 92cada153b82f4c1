package flight_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// TestGuide runs the Go code of docs/flight.md and its Python script.
func TestGuide(t *testing.T) {
	check := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	ctx, pool := context.Background(), memmgr.NewPool(memmgr.Host())
	a, err := usmarray.Arange[float32](pool, 0, 1, 20)
	check(err)
	socket := filepath.Join(t.TempDir(), "tensors.sock")
	location, err := flight.ParseLocation("grpc+unix://" + socket)
	check(err)

	server, err := flight.NewServer(flight.ServerOptions{Memory: pool})
	check(err)
	listener, at, err := server.Listen(location)
	check(err)
	go server.Serve(listener)

	client, err := flight.Dial(at.String(), flight.ClientOptions{})
	check(err)
	check(client.Put(ctx, "picture", a))
	b, err := client.Get(ctx, "picture", pool) // the caller owns b
	check(err)

	last, err := b.At(19)
	check(err)
	require.EqualValues(t, 19, last)
	a.Release()
	b.Release()

	page, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "flight.md"))
	check(err)
	_, script, found := strings.Cut(string(page), "```python\n")
	require.True(t, found)
	script, _, _ = strings.Cut(script, "```")
	script = strings.Replace(script, "/tmp/tensors.sock", socket, 1)
	python := testenv.Interpreter(t, "import numpy, pyarrow.flight")
	out, err := exec.CommandContext(t.Context(), python, "-c", script+"assert (back == picture).all()\n").CombinedOutput()
	require.NoError(t, err, "%s", out)

	// A producer that fails after 100 rows leaves the former tensor.
	const write = "writer.write_batch(rows)"
	require.Contains(t, script, write)
	script = strings.Replace(script, write, "writer.write_batch(rows.slice(0, 100)); raise KeyError(1)", 1)
	out, err = exec.CommandContext(t.Context(), python, "-c", script).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "KeyError: 1")
	require.Contains(t, string(out), "100 rows, but 480 were announced")
	former, err := server.Store().Get(ctx, "picture")
	check(err)
	require.Equal(t, 480, former.Shape()[0])
	former.Release()

	check(client.Close())
	server.Close()
	require.Eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, time.Minute, time.Millisecond)
	check(pool.Close())
}
