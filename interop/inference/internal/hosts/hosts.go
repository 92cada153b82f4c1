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

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

var protection = http.NewCrossOriginProtection()

// Check returns an error for a request, of any method, that a page of another origin made its browser send, and the
// error of CheckName.
func Check(r *http.Request, names []string) error {
	q := *r
	q.Method = http.MethodPost // net/http allows GET and HEAD of all pages
	if protection.Check(&q) != nil {
		return &oip.Error{Kind: oip.Invalid, Status: http.StatusForbidden, Message: "requests of web pages of another origin are refused"}
	}
	return CheckName(r, names)
}

// CheckName returns an error for a request whose Host a foreign name server can have made a browser send: it is not a
// numeric address, localhost, or one of names, which have no ports. Case, and a dot at the end of the name, make no
// difference.
func CheckName(r *http.Request, names []string) error {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = plain(name)
	if _, err := netip.ParseAddr(name); err == nil || strings.EqualFold(name, "localhost") {
		return nil
	}
	if slices.ContainsFunc(names, func(known string) bool { return plain(known) != "" && strings.EqualFold(name, plain(known)) }) {
		return nil
	}
	return &oip.Error{Kind: oip.Invalid, Status: http.StatusForbidden, Message: "the server does not answer under the name " + oip.Quote(r.Host) +
		"; use a numeric address or localhost, or start the server with the name in -hosts"}
}

// plain returns a name without brackets and without a dot at its end.
func plain(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"), ".")
}
