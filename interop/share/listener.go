package share

import (
	"net"
	"os"
	"time"
)

// listener is a listening socket, with the socket file that it created, if any.
type listener struct {
	net.Listener
	file string
	info os.FileInfo
}

// close stops listening, and removes the socket file if it is still the one that was created. Kernels
// without SO_PASSRIGHTS also release the descriptors that were sent on connections not accepted yet. Their
// senders can delay that, so close waits for at most longestExit.
func (l *listener) close() {
	if l.file != "" {
		if now, err := os.Lstat(l.file); err == nil && os.SameFile(now, l.info) {
			_ = os.Remove(l.file)
		}
	}
	closed := make(chan struct{})
	go func() {
		_ = l.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(longestExit):
	}
}
