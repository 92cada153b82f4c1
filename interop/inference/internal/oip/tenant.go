package oip

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/usmbridge/usmbridge/interop/flight/admission"
)

// Tenants without an address.
const (
	// LocalTenant is the tenant of the clients of a Unix socket.
	LocalTenant = "local"
	// LoopbackTenant is the tenant of all loopback addresses: a local process can use any of them.
	LoopbackTenant = "loopback"
	// OtherTenants is the tenant of the clients that have no place in the table of tenants.
	OtherTenants = "others"
)

// MaxTenant is the maximum length of the name of a tenant in a header, in bytes.
const MaxTenant = 128

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// TenantRule decides the tenant of a request: the address group of its client, or the name in a
// header if the client is a proxy of the operator. The zero rule uses addresses only.
type TenantRule struct {
	Header  string // of HTTP, or the metadata key of gRPC; "" for none
	Proxies []netip.Prefix
	Unix    bool // clients of Unix sockets are proxies
}

// ParseProxies sets the proxies from a list of addresses and prefixes, with commas between them.
// "unix" means the clients of Unix sockets.
func (t *TenantRule) ParseProxies(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "unix" {
			t.Unix = true
			continue
		}
		prefix, err := netip.ParsePrefix(name)
		if err != nil {
			addr, addrErr := netip.ParseAddr(name)
			if addrErr != nil {
				return fmt.Errorf("invalid proxy %q: want an address, a prefix, or unix", name)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		t.Proxies = append(t.Proxies, prefix)
	}
	return nil
}

// Of returns the tenant of a request: remote is the address of the client, host:port, and names
// returns the values of the header. Errors: Invalid if a proxy sends more than one name, or one that
// is too long.
func (t *TenantRule) Of(remote string, names func() []string) (string, error) {
	peer, err := netip.ParseAddrPort(remote)
	tenant, proxy := LocalTenant, t.Unix
	if err == nil {
		addr := peer.Addr().Unmap()
		tenant = groupName(admission.Client(net.TCPAddrFromAddrPort(peer)))
		proxy = slices.ContainsFunc(t.Proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	if t.Header == "" || !proxy {
		return tenant, nil
	}
	list := names()
	switch {
	case len(list) > 1 || len(list) == 1 && len(list[0]) > MaxTenant:
		return "", Errorf(Invalid, "%s must have one name of at most %d bytes", t.Header, MaxTenant)
	case len(list) == 1 && list[0] != "":
		return list[0], nil
	}
	return tenant, nil
}

// groupName returns the name of the tenant of a client's addresses.
func groupName(group netip.Prefix) string {
	switch {
	case group == loopback:
		return LoopbackTenant
	case group.IsSingleIP():
		return group.Addr().String()
	default:
		return group.String()
	}
}

// TenantLabel returns the name of a tenant in logs and metrics: an address group as it is, and a hash
// of any other name, because a header may contain a token. The hash does not change between starts.
func TenantLabel(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.WithZone("").String()
	}
	if group, err := netip.ParsePrefix(name); err == nil {
		return group.String()
	}
	switch name {
	case "", LocalTenant, LoopbackTenant, OtherTenants:
		return cmp.Or(name, LocalTenant)
	}
	hash := sha256.Sum256([]byte(name))
	return "tenant " + hex.EncodeToString(hash[:5])
}
