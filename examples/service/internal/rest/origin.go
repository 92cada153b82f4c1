package rest

import (
	"net/http"

	"github.com/usmbridge/usmbridge/examples/service/internal/hosts"
	"github.com/usmbridge/usmbridge/examples/service/internal/oip"
)

// origins refuses what a page of another site has a browser send: browsers let any page post to
// any address, those of this machine among them, and only hide the answer from it.
var origins = http.NewCrossOriginProtection()

// admit refuses requests of web pages that are not of this server: of another origin, and, where
// a name was made to point here (DNS rebinding), of the same one under a name that is not among
// Options.Hosts. Programs that are no browsers send no Origin.
func (x *exchange) admit() error {
	if x.r.Method == http.MethodGet || x.r.Method == http.MethodHead {
		return nil
	}
	_, page := x.r.Header["Origin"]
	if _, fetched := x.r.Header["Sec-Fetch-Site"]; !page && !fetched {
		return nil
	}
	if err := origins.Check(x.r); err != nil {
		return &refusal{status: http.StatusForbidden, message: "requests of web pages of another origin are refused", err: err}
	}
	if !hosts.Known(x.r.Host, x.h.o.Hosts) {
		return &refusal{status: http.StatusForbidden, message: "requests of web pages are refused under the name " + oip.Quote(x.r.Host)}
	}
	return nil
}
