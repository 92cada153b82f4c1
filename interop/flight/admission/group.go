package admission

import (
	"net"
	"net/netip"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// Client returns the addresses that one client can be expected to use: an IPv4 address, the /64 of an
// IPv6 address, or all loopback addresses, because each local process can use any of them. An
// IPv4-mapped IPv6 address counts as an IPv4 address. Unix sockets return the zero Prefix: the
// permissions of the socket's file control who can connect.
func Client(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := t.AddrPort().Addr().Unmap()
	bits := 32
	switch {
	case addr.IsLoopback():
		return loopback
	case addr.Is6():
		bits = 64
	}
	g, _ := addr.WithZone("").Prefix(bits)
	return g
}
