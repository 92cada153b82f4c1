package rest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/usmbridge/usmbridge/examples/service/internal/conns"
	"github.com/usmbridge/usmbridge/examples/service/internal/peercred"
)

// Server returns a server of HTTP/1 for the handler, whose times and sizes fit it: slow headers
// and idle connections are cut off, bodies are the handler's affair. The caller serves and ends
// it; Listen bounds its connections.
func (h *Handler) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		ConnContext:       withClient,
		Protocols:         protocols,
		ReadHeaderTimeout: h.o.Grace,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),
		// An asterisk is no path of the protocol's.
		DisableGeneralOptionsHandler: true,
	}
}

// Connections bound the connections of a listener. What is 0 is a default.
type Connections struct {
	Most       int // that are open; 1024. Others wait in the system's queue.
	PerAddress int // of one address, half of Most; others are closed at once. Unix sockets have none.
}

// Listen bounds the connections that a listener accepts. Its Close closes the listener, and
// leaves the connections.
func Listen(l net.Listener, c Connections) net.Listener {
	if c.Most <= 0 {
		c.Most = 1024
	}
	if c.PerAddress <= 0 {
		c.PerAddress = max(c.Most/2, 1)
	}
	return conns.Listen(l, c.Most, c.PerAddress)
}

// clientKey is the key of a peercred.Client in the context of the requests of a connection.
type clientKey struct{}

// withClient adds the client of a Unix socket to the context of its connection.
func withClient(ctx context.Context, c net.Conn) context.Context {
	if from := peercred.Of(c.RemoteAddr()); from.Local {
		return context.WithValue(ctx, clientKey{}, from)
	}
	return ctx
}

// client returns the client that sent the request.
func (x *exchange) client() peercred.Client {
	from, _ := x.r.Context().Value(clientKey{}).(peercred.Client)
	return from
}
