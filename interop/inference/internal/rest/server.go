package rest

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/conns"
	"github.com/usmbridge/usmbridge/interop/inference/internal/hosts"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/peercred"
)

// Server returns an HTTP/1 server for the handler, which ends slow headers and idle connections. The
// handler bounds the time of bodies. The caller serves and ends the server; Serve bounds its
// connections.
func (h *Handler) Server() *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: h.limits.grace,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),
		// An asterisk is no path of the protocol's.
		DisableGeneralOptionsHandler: true,
	}
}

// reserve is the number of connections beyond the bounds. They serve health probes; other requests
// get Busy.
const reserve = 16

// connKey is the key of the net.Conn in the context of the requests of a connection.
type connKey struct{}

// Serve serves a listener, and returns like server.Serve. It is called once for a server with a Handler.
// The limits of connections that are 0 have their defaults: 1024 open connections, and half of Most for a
// client. When all are taken, the connection that has been without a request for the longest time is closed
// in favor of a new one.
func Serve(server *http.Server, l net.Listener, limits conns.Limits) error {
	limits.Most = cmp.Or(limits.Most, 1024)
	limits.PerGroup = cmp.Or(limits.PerGroup, max(limits.Most/2, 1))
	limits.Reserve = reserve
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*conns.Conn); ok && state == http.StateIdle { // the response was sent
			c.End()
		}
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conns.Conn); ok {
			c.Begin()
			if c.Reserved() {
				header := w.Header()
				header.Set("Connection", "close")
				if !isProbe(r) {
					header[contentType] = typeJSON
					header["Retry-After"] = []string{"1"}
					w.WriteHeader(oip.Busy.HTTP())
					_, _ = w.Write([]byte(`{"error":"all connections are in use"}`)) // an error means that the client is gone
					return
				}
			}
		}
		next.ServeHTTP(w, r)
	})
	return server.Serve(conns.Evict(l, limits))
}

// isProbe reports whether a request asks for the server's health.
func isProbe(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.ContentLength == 0 && strings.HasPrefix(r.URL.Path, "/v2/health/")
}

// client returns the client that sent the request. Without Serve, it is a client of a network.
func (x *exchange) client() (from peercred.Client) {
	if c, ok := x.r.Context().Value(connKey{}).(net.Conn); ok {
		from = peercred.Of(c.RemoteAddr())
	}
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
