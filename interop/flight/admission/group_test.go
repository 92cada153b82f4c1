package admission

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClient(t *testing.T) {
	client := func(addr string) netip.Prefix {
		return Client(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 1)))
	}
	for _, same := range [][2]string{{"192.0.2.1", "::ffff:192.0.2.1"}, {"2001:db8:1:2:3::4", "2001:db8:1:2:ffff:ffff:ffff:ffff"},
		{"127.0.0.1", "127.9.9.9"}, {"127.0.0.1", "::1"}, {"::1", "::ffff:127.0.0.1"}, {"fe80::1%eth0", "fe80::2"}} {
		require.Equal(t, client(same[0]), client(same[1]), same)
	}
	for _, apart := range [][2]string{{"192.0.2.1", "192.0.2.2"}, {"2001:db8:1:2::", "2001:db8:1:3::"}, {"192.0.2.1", "127.0.0.1"}} {
		require.NotEqual(t, client(apart[0]), client(apart[1]), apart)
	}
	require.False(t, Client(&net.UnixAddr{Name: "@"}).IsValid())
}
