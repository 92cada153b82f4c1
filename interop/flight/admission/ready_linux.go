package admission

import (
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// ready is a counted connection from which gRPC reads into a pooled buffer only when bytes are there.
// gRPC's transport looks for the method ReadOnReady; without it, each idle connection holds a buffer.
// Only one goroutine may read.
type ready struct {
	*counted
	raw  syscall.RawConn
	read func(fd uintptr) bool // stored, so that not every read allocates it

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

// once reads the available bytes. It returns false if there are none yet, to be called again when
// there are.
func (r *ready) once(fd uintptr) bool {
	r.buf = r.pool.Get(r.size)
	for {
		r.n, r.err = syscall.Read(int(fd), *r.buf)
		if r.err != syscall.EINTR { //nolint:errorlint // returned by a system call
			break
		}
	}
	if r.err != nil {
		r.n = 0
		r.pool.Put(r.buf)
		r.buf = nil
	}
	return r.err != syscall.EAGAIN //nolint:errorlint // returned by a system call
}

// ReadOnReady waits for bytes, gets a buffer of size bytes from the pool, and reads once. If n is above
// 0, the caller owns the buffer. Otherwise there is no buffer and an error, which is io.EOF at the end
// of the connection.
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
