package flight

import (
	"net"
	"net/netip"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// group returns the addresses that one client can be expected to have: an IPv4 address, the /64 of
// an IPv6 address, or all loopback addresses, because each local process can use any of them. An
// IPv4-mapped IPv6 address is an IPv4 address. A Unix socket has no group (the zero Prefix) and no
// bound: the permissions of its file decide who may connect. examples/service/internal/conns has the
// same function, and its tests.
func group(a net.Addr) netip.Prefix {
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
