//go:build cgo && linux

package pymodule_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// thePeer is a Python program that attaches the array of this test, changes an element, sends a handle of an
// array, publishes an array of its own, and adds 1 to an array whose handle it reads.
const thePeer = `
import sys, usmbridge as ub
a = ub.share.attach(sys.argv[1], "go")
print(a.tolist(), a.readonly, a.interprocess, a.strides, flush=True)
a[0, 1] = 42
with ub.share.serve("", {"own": ub.full(3, 7, "int32", device="host", interprocess="readonly")}) as server:
    print(server.address, ub.share.names(sys.argv[1]), flush=True)
    print(ub.share.export(ub.full(2, 5, "int16", device="host", interprocess=True)).hex(), flush=True)
    sent = ub.share.open(bytes.fromhex(sys.stdin.readline()))
    print(sent.tolist(), flush=True)
    sent[0] = sent[0].item() + 1
    sys.stdin.readline()
`

// sharing returns a pool of memory that peers can write, and a server. At its end the test must have released all arrays.
func sharing(t *testing.T) (context.Context, *memmgr.Pool, *share.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	memory := testenv.Must(segment.NewHost(segment.PeersWrite))(t)
	pool := memmgr.NewPool(memory)
	server := testenv.Must(share.Listen(ctx, "", share.Options{}))(t)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, server.Close())
		require.Eventually(t, func() bool { return pool.Stats().Allocation.Current == 0 }, time.Minute, time.Millisecond)
		require.NoError(t, pool.Close())
		require.NoError(t, memory.Close())
	})
	return ctx, pool, server
}

// TestGoAndPython shares arrays between a server in Go and a client in Python, and the reverse.
func TestGoAndPython(t *testing.T) {
	env := testpython.Need(t)
	host := buildHost(t)
	ctx, pool, server := sharing(t)
	a := testenv.Must(usmarray.FromSlice(pool, []int32{1, 2, 3, 4, 5, 6}, []int{2, 3}))(t)
	require.NoError(t, server.Publish(ctx, "go", a))

	cmd := exec.CommandContext(ctx, host, "-c", thePeer, server.Address())
	cmd.Env = append(os.Environ(), "USMBRIDGE_PYTHON="+env.Executable)
	cmd.Stderr = os.Stderr
	in := testenv.Must(cmd.StdinPipe())(t)
	out := testenv.Must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "[[1, 2, 3], [4, 5, 6]] False True (3, 1)", lines.Text())
	require.True(t, lines.Scan())
	address, names, _ := strings.Cut(lines.Text(), " ")
	require.Equal(t, "['go']", names)
	x := testenv.Must(a.At(0, 1))(t)
	require.Equal(t, int32(42), x)
	require.True(t, lines.Scan())
	encoded := testenv.Must(hex.DecodeString(lines.Text()))(t)
	handle := testenv.Must(share.ParseHandle(encoded))(t)
	received := testenv.Must(server.Open(ctx, handle))(t)
	require.Equal(t, []int16{5, 5}, testenv.Must(usmarray.ToSlice[int16](received))(t))
	received.Release()

	peer := testenv.Must(share.Dial(ctx, address, share.Options{}))(t)
	b := testenv.Must(peer.Attach(ctx, "own"))(t)
	sent := testenv.Must(usmarray.FromSlice(pool, []int64{10, 20}, []int{2}))(t)
	handle = testenv.Must(server.Export(ctx, sent, share.ExportOptions{}))(t)
	require.NoError(t, testenv.ErrorOf(fmt.Fprintf(in, "%x\n", handle.Bytes())))
	require.True(t, lines.Scan())
	require.Equal(t, "[10, 20]", lines.Text())
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	require.Equal(t, []int64{11, 20}, testenv.Must(usmarray.ToSlice[int64](sent))(t))
	sent.Release()
	v, err := usmarray.ToSlice[int32](b) // the process that made it has ended
	require.NoError(t, err)
	require.Equal(t, []int32{7, 7, 7}, v)
	require.True(t, b.ReadOnly())
	b.Release()
	require.NoError(t, peer.Close())
	a.Release()
}

// TestInForkedChildren checks that a process that Python forked can use memory that Go allocated and other processes
// can map. Memory that was received from another process raises an error there, which the Python tests check.
func TestInForkedChildren(t *testing.T) {
	py, _ := start(t)
	_, pool, _ := sharing(t)
	a := testenv.Must(usmarray.FromSlice(pool, []int32{1, 2, 3}, []int{3}))(t)
	o := testenv.Must(pymodule.ToPython(a))(t)
	const inChild = `
import os
def said(a):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(w, str(a.tolist()).encode())
        os._exit(0)
    os.close(w)
    text = os.read(r, 100).decode()
    os.close(r)
    return text, os.waitpid(pid, 0)[1], a.interprocess, a.tolist()
`
	got := eval(t, py, "(lambda g: (exec(code, g), g['said'](x))[1])({})", python.Vars{"x": o, "code": inChild})
	require.Equal(t, "('[1, 2, 3]', 0, True, [1, 2, 3])", text(t, got))
	o.Release()
	a.Release()
}
