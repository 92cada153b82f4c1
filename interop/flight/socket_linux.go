package flight

import (
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// ready is a counted connection that gRPC reads into a buffer of a pool only once there
// is something to read (the method that gRPC's transport looks for; without it a buffer
// stays with each connection). One goroutine reads.
type ready struct {
	*counted
	raw  syscall.RawConn
	read func(fd uintptr) bool // kept: it would be allocated for each read

	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

func accepted(c *counted) net.Conn {
	r := &ready{counted: c}
	s, ok := c.Conn.(syscall.Conn)
	if !ok {
		return c
	}
	var err error
	if r.raw, err = s.SyscallConn(); err != nil {
		return c
	}
	r.read = r.once
	return r
}

// once reads what there is; false asks to be called again when there is something.
func (r *ready) once(fd uintptr) bool {
	r.buf = r.pool.Get(r.size)
	for {
		r.n, r.err = syscall.Read(int(fd), *r.buf)
		if r.err != syscall.EINTR { //nolint:errorlint // a system call's own
			break
		}
	}
	if r.err != nil {
		r.n = 0
		r.pool.Put(r.buf)
		r.buf = nil
	}
	return r.err != syscall.EAGAIN //nolint:errorlint // a system call's own
}

// ReadOnReady waits for bytes, takes a buffer of size bytes from the pool and reads once.
// The buffer is the caller's when n is above 0; otherwise there is an error, io.EOF at
// the end of the connection, and no buffer.
func (r *ready) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	r.size, r.pool, r.buf, r.n, r.err = size, pool, nil, 0, nil
	err = r.raw.Read(r.read)
	buf, n = r.buf, r.n
	r.pool, r.buf = nil, nil
	switch {
	case err == nil && r.err != nil:
		err = r.err
	case err == nil && n == 0:
		err = io.EOF
	}
	if err != nil && buf != nil {
		pool.Put(buf)
		buf, n = nil, 0
	}
	return buf, n, err
}
