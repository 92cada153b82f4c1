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

// Of returns the client of an accepted connection.
func Of(c net.Conn) (client Client) {
	if client.Local = c.LocalAddr().Network() == "unix"; client.Local {
		client.UID, client.Known = user(c)
	}
	return client
}
