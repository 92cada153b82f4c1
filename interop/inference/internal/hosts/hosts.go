// Package hosts recognizes requests that a web page may have made a browser send. Browsers let any page
// send requests to any address, also to those of this machine, and only hide the response from the page.
// A page can also point its own name to any address (DNS rebinding): then the requests are of the same
// origin, and the page reads the responses.
package hosts

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

var protection = http.NewCrossOriginProtection()

// CrossOrigin reports whether a page of another origin made its browser send a request, of any method.
func CrossOrigin(r *http.Request) bool {
	q := *r
	q.Method = http.MethodPost // net/http allows GET and HEAD of all pages
	return protection.Check(&q) != nil
}

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
	return slices.ContainsFunc(names, func(known string) bool { return plain(known) != "" && strings.EqualFold(name, plain(known)) })
}

// plain returns a name without brackets and without a dot at its end.
func plain(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), ".")
}
