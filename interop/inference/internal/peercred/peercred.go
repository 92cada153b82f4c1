// Package peercred identifies the clients of Unix sockets by the user that the kernel recorded
// when they connected (SO_PEERCRED).
package peercred

import (
	"net"
	"syscall"
)

// Client is the origin of a request. The zero Client connected through a network.
type Client struct {
	Local bool   // connected through a Unix socket
	Known bool   // UID is the client's effective user at that time
	UID   uint32 // in the user namespace of this process
}

// Owns reports whether uid is the user of the client. It is false for clients of a network. In a user namespace
// that does not map all users, the overflow id stands for several users: the caller must not ask for it.
func (c Client) Owns(uid uint32) bool { return c.Local && c.Known && c.UID == uid }

// Of returns the client of an accepted connection.
func Of(c net.Conn) (client Client) {
	client.Local = c.LocalAddr().Network() == "unix"
	s, ok := c.(syscall.Conn)
	if !client.Local || !ok {
		return client
	}
	raw, err := s.SyscallConn()
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
