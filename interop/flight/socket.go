package flight

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// Bytes per system call. gRPC's frames have 16 KiB, and besides its copies a transfer over a local
// socket costs each system call, and each time that one side wakes the other. With gRPC's own 32 KiB a
// get took 2.2 to 2.5 times the processor time of a plain copy, in the same runs with these sizes 1.5
// to 1.7 times. Larger sizes gained nothing measurable.
const (
	// ioBuffer is the size that gRPC reads and writes at a time. It holds such buffers only during
	// transfers.
	ioBuffer = 256 << 10
	// socketBuffer is the buffer size requested for a Unix socket; net.core.wmem_max bounds it. TCP
	// sizes its own buffers.
	socketBuffer = 512 << 10
)

// widen requests larger buffers for a Unix socket. If the kernel refuses, transfers are slower.
func widen(c net.Conn) {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(socketBuffer)
		_ = u.SetReadBuffer(socketBuffer)
	}
}

// wideListener widens the connections that it accepts.
type wideListener struct{ net.Listener }

// Accept implements net.Listener.
func (l wideListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		widen(c)
	}
	return c, err
}

// wideCredentials widen the connections of a client.
type wideCredentials struct {
	credentials.TransportCredentials
}

// ClientHandshake implements credentials.TransportCredentials.
func (w wideCredentials) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	widen(c)
	return w.TransportCredentials.ClientHandshake(ctx, authority, c)
}

// Clone implements credentials.TransportCredentials.
func (w wideCredentials) Clone() credentials.TransportCredentials {
	return wideCredentials{w.TransportCredentials.Clone()}
}
