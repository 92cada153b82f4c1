package oip

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
)

// TenantLabel is what a tenant is called in logs, reports, metrics and on the page: an address as
// it is, and a hash of any other name, because a header that tells tenants apart may well carry a
// token. It is the same at each start, so that series go on.
func TenantLabel(name string) string {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.WithZone("").String()
	}
	switch name {
	case "", "unix", "local":
		return "local"
	}
	hash := sha256.Sum256([]byte(name))
	return "tenant " + hex.EncodeToString(hash[:5])
}
