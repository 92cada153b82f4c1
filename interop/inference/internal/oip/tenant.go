package oip

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/netip"
)

// LocalTenant is the tenant of clients that come by a Unix socket.
const LocalTenant = "local"

// OtherTenants is the tenant of all those together for whom there is no place of their own.
const OtherTenants = "others"

// MaxTenant is the longest name of a tenant that a request may bring, in bytes.
const MaxTenant = 128

// AddressTenant is the tenant that stands behind an address, host:port: the host.
func AddressTenant(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil || host == "" {
		return LocalTenant
	}
	return host
}

// NamedTenant is the tenant that a header, or metadata, names; "" where it names none. Errors:
// Invalid for more than one name, and for one that is too long.
func NamedTenant(header string, names []string) (string, error) {
	switch {
	case len(names) > 1 || len(names) == 1 && len(names[0]) > MaxTenant:
		return "", Errorf(Invalid, "%s names one tenant, in at most %d bytes", header, MaxTenant)
	case len(names) == 1:
		return names[0], nil
	}
	return "", nil
}

// TenantLabel is what a tenant is called in logs, reports, metrics and on the page: an address as
// it is, and a hash of any other name, because a header that tells tenants apart may well carry a
// token. It is the same at each start, so that series go on.
func TenantLabel(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.WithZone("").String()
	}
	switch name {
	case "", LocalTenant, OtherTenants:
		return cmp.Or(name, LocalTenant)
	}
	hash := sha256.Sum256([]byte(name))
	return "tenant " + hex.EncodeToString(hash[:5])
}
