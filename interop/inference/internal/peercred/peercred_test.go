//go:build linux

package peercred_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/flight/admission"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred/peercredtest"
)

// client accepts one connection on a listener with a limit, like the servers, and returns its
// client.
func client(t *testing.T, l net.Listener, dial func() (net.Conn, error)) peercred.Client {
	t.Helper()
	bounded := admission.Limit(l, 4)
	defer bounded.Close()
	c := testenv.Must(dial())(t)
	defer c.Close()
	accepted := testenv.Must(bounded.Accept())(t)
	defer accepted.Close()
	return peercred.Of(accepted)
}

func TestOwnUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := testenv.Must(net.Listen("unix", path))(t)
	got := client(t, l, func() (net.Conn, error) { return net.Dial("unix", path) })
	require.Equal(t, peercred.Client{Local: true, Known: true, UID: uint32(os.Geteuid())}, got)
	require.True(t, got.Owns(uint32(os.Geteuid())))
	require.False(t, got.Owns(12345))
}

func TestAnotherUser(t *testing.T) {
	path := peercredtest.Socket(t)
	l := testenv.Must(net.Listen("unix", path))(t)
	require.NoError(t, os.Chmod(path, 0o666))
	got := client(t, l, func() (net.Conn, error) { return peercredtest.Dial(12345, path) })
	require.Equal(t, peercred.Client{Local: true, Known: true, UID: 12345}, got)
	require.False(t, got.Owns(0))
}

// TestNameOfTheClientIsNotUsed checks that the name of a client's socket is ignored. The name can
// look like the address of another client.
func TestNameOfTheClientIsNotUsed(t *testing.T) {
	l := testenv.Must(net.Listen("unix", filepath.Join(t.TempDir(), "s")))(t)
	defer l.Close()
	name := filepath.Join(t.TempDir(), "10.0.0.1:80")
	c := testenv.Must(net.DialUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}, l.Addr().(*net.UnixAddr)))(t)
	defer c.Close()
	accepted := testenv.Must(l.Accept())(t)
	defer accepted.Close()
	require.Equal(t, peercred.Client{Local: true, Known: true, UID: uint32(os.Geteuid())}, peercred.Of(accepted))

	// Without its descriptor, the user of a connection is not known.
	unknown := peercred.Of(struct{ net.Conn }{accepted})
	require.Equal(t, peercred.Client{Local: true}, unknown)
	require.False(t, unknown.Owns(0))
}

// TestUnknownUser checks that a network client owns no memory.
func TestUnknownUser(t *testing.T) {
	l := testenv.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	got := client(t, l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) })
	require.Zero(t, got)
	require.False(t, got.Owns(0))
	require.False(t, peercred.Client{UID: 12345, Known: true}.Owns(12345))
}
