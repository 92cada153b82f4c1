package rest

import (
	"net/http"

	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// origins refuses requests of web pages of another origin. Browsers let any page post to any
// address, also to those of this machine, and only hide the response from the page.
var origins = http.NewCrossOriginProtection()

// admit refuses requests that a web page may have made a browser send.
//
// A page can make its own name point to this address (DNS rebinding). Then its requests are of the
// same origin, and it reads the responses. A GET of such a page looks like that of a program: it has
// no Origin and, without TLS, no Sec-Fetch-Site. So GET and HEAD need a Host that no other name
// server can make a browser use: an address, localhost, or one of Options.Hosts. Browsers send other
// methods with an Origin, so programs may use any name for them. Browsers always send a Host and do
// not connect to Unix sockets.
func (x *exchange) admit() error {
	if x.r.Method == http.MethodGet || x.r.Method == http.MethodHead {
		if x.r.Host == "" || x.client().Local {
			return nil
		}
		return x.knownHost()
	}
	_, page := x.r.Header["Origin"]
	if _, fetched := x.r.Header["Sec-Fetch-Site"]; !page && !fetched {
		return nil
	}
	if err := origins.Check(x.r); err != nil {
		return &refusal{status: http.StatusForbidden, message: "requests of web pages of another origin are refused", err: err}
	}
	return x.knownHost()
}

// knownHost refuses requests whose Host is a name that Options.Hosts does not have.
func (x *exchange) knownHost() error {
	if hosts.Known(x.r.Host, x.h.o.Hosts) {
		return nil
	}
	return &refusal{status: http.StatusForbidden, message: "the server does not answer under the name " + oip.Quote(x.r.Host) +
		"; use a numeric address or localhost, or start the service with the name in -hosts"}
}
