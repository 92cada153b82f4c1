package share

import (
	"net"
	"os"
	"time"
)

// listener is a listening socket and the file that it made, if it made one.
type listener struct {
	net.Listener
	file string
	info os.FileInfo
}

// close ends the listening, and takes away the file if it is still the one that was made. Kernels
// without SO_PASSRIGHTS also release the descriptors that were sent on connections not accepted
// yet, which their senders can delay: close does not wait longer than for the end of a process.
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
