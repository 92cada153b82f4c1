//go:build unix

package admission

import (
	"errors"
	"io"
	"syscall"

	"google.golang.org/grpc/mem"
)

// ReadOnReady gets a buffer from the pool when there are bytes to read. gRPC's transport calls it.
func (c *conn) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		buf = pool.Get(size)
		for failed = syscall.EINTR; errors.Is(failed, syscall.EINTR); {
			n, failed = syscall.Read(int(fd), *buf)
		}
		if failed != nil || n == 0 {
			pool.Put(buf)
			buf, n = nil, 0
		}
		return !errors.Is(failed, syscall.EAGAIN)
	})
	if err = errors.Join(err, failed); err == nil && n == 0 {
		err = io.EOF
	}
	return buf, n, err
}
