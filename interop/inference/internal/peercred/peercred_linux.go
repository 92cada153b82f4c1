package peercred

import (
	"net"
	"syscall"
)

// user reads the user of the client of an accepted connection. known is false if that fails.
func user(c net.Conn) (uid uint32, known bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) {
		if u, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid, known = u.Uid, true
		}
	})
	return uid, known
}
