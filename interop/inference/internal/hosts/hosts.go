// Package hosts checks the Host of requests: a web page can point its own name to any address, and
// have the browser send requests there under that name (DNS rebinding).
package hosts

import (
	"net"
	"net/netip"
	"strings"
)

// Known reports whether a foreign name server cannot have made a browser send a Host header: it is a
// numeric address, localhost, or one of names, which have no ports. Case, and a dot at the end of
// the name, make no difference.
func Known(host string, names []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = plain(name)
	if _, err := netip.ParseAddr(name); err == nil || strings.EqualFold(name, "localhost") {
		return true
	}
	for _, known := range names {
		if known = plain(known); known != "" && strings.EqualFold(name, known) {
			return true
		}
	}
	return false
}

// plain returns a name without brackets and without a dot at its end.
func plain(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), ".")
}
