package share

import (
	"net"
	"os"
)

// listener is a listening socket and the file that it made, if it made one.
type listener struct {
	net.Listener
	file string
	info os.FileInfo
}

// close ends the listening, and takes away the file if it is still the one that was made.
func (l *listener) close() {
	if l.file != "" {
		if now, err := os.Lstat(l.file); err == nil && os.SameFile(now, l.info) {
			_ = os.Remove(l.file)
		}
	}
	_ = l.Close()
}
