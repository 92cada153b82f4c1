// Package peercred identifies the clients of Unix sockets by the user that the kernel recorded
// when they connected (SO_PEERCRED).
package peercred

import (
	"bytes"
	"net"
	"os"
	"strconv"
	"sync"
)

// Client is the origin of a request. The zero Client connected through a network.
type Client struct {
	Local bool   // connected through a Unix socket
	Known bool   // UID is the client's effective user at that time
	UID   uint32 // in the user namespace of this process
}

// Owns reports whether uid is the user of the client. It is false for clients of a network.
func (c Client) Owns(uid uint32) bool { return c.Local && c.Known && Same(c.UID, uid) }

// Same reports whether two user ids mean the same user. In a user namespace that does not map
// all users, the overflow id stands for every user that is not mapped and is equal to none.
func Same(a, b uint32) bool { return a == b && (a != overflow() || mapsAll()) }

// overflow returns the overflow id, which tmpfs and SO_PEERCRED report for users that are not mapped.
var overflow = sync.OnceValue(func() uint32 {
	text, _ := os.ReadFile("/proc/sys/kernel/overflowuid")
	if n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 32); err == nil {
		return uint32(n)
	}
	return 65534 // the kernel's default
})

// mapsAll reports whether the user namespace of this process maps all users.
var mapsAll = sync.OnceValue(func() bool {
	text, _ := os.ReadFile("/proc/self/uid_map")
	return coversAll(text)
})

// allUsers is the number of valid user ids.
const allUsers = 1<<32 - 1

// coversAll reports whether a uid_map (user_namespaces(7)) maps all users. Its ranges do not overlap.
// internal/userid of the root module has the same function, which this module cannot import.
func coversAll(uidMap []byte) bool {
	sum := uint64(0)
	for line := range bytes.Lines(uidMap) {
		f := bytes.Fields(line)
		if len(f) != 3 {
			return false
		}
		n, err := strconv.ParseUint(string(f[2]), 10, 32)
		if err != nil {
			return false
		}
		sum += n
	}
	return sum == allUsers
}

// Listen returns a listener whose connections report their client, by [Of], if l is a Unix
// socket. Other listeners are returned as they are.
func Listen(l net.Listener) net.Listener {
	if l.Addr().Network() != "unix" {
		return l
	}
	return listener{l}
}

// Of returns the client at the remote address of a connection.
func Of(remote net.Addr) Client {
	switch a := remote.(type) {
	case *address:
		return a.client
	case *net.UnixAddr:
		return Client{Local: true}
	}
	return Client{}
}

type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if u, ok := c.(*net.UnixConn); ok && err == nil {
		return &conn{UnixConn: u, remote: &address{Addr: u.RemoteAddr(), client: credentials(u)}}, nil
	}
	return c, err
}

type conn struct {
	*net.UnixConn
	remote *address
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// address is the remote address of a connection, with its client.
type address struct {
	net.Addr
	client Client
}

// String returns "@", the address of a socket without a name. A client may bind its socket to any
// name, also to one that looks like the address of another client.
func (*address) String() string { return "@" }
