package peercred

import (
	"net"
	"syscall"
)

// credentials reads the client of an accepted connection. The user is unknown if that fails.
func credentials(c *net.UnixConn) Client {
	client := Client{Local: true}
	raw, err := c.SyscallConn()
	if err != nil {
		return client
	}
	_ = raw.Control(func(fd uintptr) {
		if u, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			client.UID, client.Known = u.Uid, true
		}
	})
	return client
}
