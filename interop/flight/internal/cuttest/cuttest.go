// Package cuttest breaks connections for tests.
package cuttest

import (
	"io"
	"net"
	"sync"
)

// Cutter passes connections on to a socket until so many bytes have gone one way, then
// closes both ends without a word: what a killed process leaves.
type Cutter struct {
	To       string // the path of a unix socket
	Up, Down int64  // bytes to the server and from it; below 0 for no limit

	wait sync.WaitGroup
}

// Start passes on what connects to the listener, until that is closed.
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
