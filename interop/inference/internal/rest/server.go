package rest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
)

// Server returns an HTTP/1 server for the handler, which ends slow headers and idle connections. The
// handler bounds the time of bodies. The caller serves and ends the server.
func (h *Handler) Server() *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: h.limits.grace,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(h.o.Engine.Log().Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, peercred.Of(c))
		},
		// An asterisk is no path of the protocol's.
		DisableGeneralOptionsHandler: true,
	}
}

// clientKey is the key of the client in the context of the requests of a connection.
type clientKey struct{}

// client returns the client that sent the request. With another server than that of Server, it is a client of a network.
func (x *exchange) client() peercred.Client {
	from, _ := x.r.Context().Value(clientKey{}).(peercred.Client)
	return from
}

// admit refuses requests that a web page may have made a browser send (see package hosts).
//
// A GET of a page that made its name point to this address looks like that of a program: it has no
// Origin and, without TLS, no Sec-Fetch-Site. So GET and HEAD need a Host that no other name server
// can make a browser use: an address, localhost, or one of Options.Hosts. Browsers send other methods
// with an Origin, so programs may use any name for them. Browsers always send a Host and do not
// connect to Unix sockets.
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
	if hosts.CrossOrigin(x.r) {
		return refuse(http.StatusForbidden, oip.Invalid, "requests of web pages of another origin are refused", nil)
	}
	return x.knownHost()
}

// knownHost refuses requests whose Host is a name that Options.Hosts does not have.
func (x *exchange) knownHost() error {
	if hosts.Known(x.r.Host, x.h.o.Hosts) {
		return nil
	}
	return refuse(http.StatusForbidden, oip.Invalid, "the server does not answer under the name "+oip.Quote(x.r.Host)+
		"; use a numeric address or localhost, or start the service with the name in -hosts", nil)
}
