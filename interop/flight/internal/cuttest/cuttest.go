// Package cuttest interrupts connections in tests.
package cuttest

import (
	"io"
	"net"
	"sync"
)

// Cutter forwards connections to a Unix socket. After a number of bytes in one direction it closes
// both ends, as the kernel does for a killed process.
type Cutter struct {
	To       string // path of the Unix socket
	Up, Down int64  // bytes to the server and from it before the cut; negative: no limit

	wait sync.WaitGroup
}

// Start forwards the connections of the listener until it is closed.
func (c *Cutter) Start(l net.Listener) { c.wait.Go(func() { c.serve(l) }) }

// Wait returns when the listener and all connections are closed.
func (c *Cutter) Wait() { c.wait.Wait() }

func (c *Cutter) serve(l net.Listener) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("unix", c.To)
		if err != nil {
			from.Close()
			continue
		}
		c.wait.Go(func() { pass(to, from, c.Up) })
		c.wait.Go(func() { pass(from, to, c.Down) })
	}
}

func pass(dst, src net.Conn, n int64) {
	if n < 0 {
		_, _ = io.Copy(dst, src)
	} else {
		_, _ = io.CopyN(dst, src, n)
	}
	dst.Close()
	src.Close()
}
