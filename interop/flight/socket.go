package flight

import "net"

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

// widened requests larger buffers for a Unix socket. If the kernel refuses, transfers are slower.
func widened(c net.Conn, err error) (net.Conn, error) {
	if u, ok := c.(*net.UnixConn); ok && err == nil {
		_ = u.SetWriteBuffer(socketBuffer)
		_ = u.SetReadBuffer(socketBuffer)
	}
	return c, err
}

// wideListener widens the connections that it accepts.
type wideListener struct{ net.Listener }

// Accept implements net.Listener.
func (l wideListener) Accept() (net.Conn, error) { return widened(l.Listener.Accept()) }
