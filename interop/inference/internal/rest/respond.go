package rest

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/inference/internal/traces"
)

// Values of headers that most responses have.
var (
	typeJSON   = []string{"application/json"}
	typeBinary = []string{"application/octet-stream"}
)

const (
	contentType  = "Content-Type"
	headerLength = "Inference-Header-Content-Length"
)

// refusal is an error of HTTP alone, which the protocol has no word for.
type refusal struct {
	status  int
	message string
	allow   string // methods
	err     error  // for the log
}

func (e *refusal) Error() string { return e.message }
func (e *refusal) Unwrap() error { return e.err }

// kind is the nearest that the protocol has, for those who count.
func (e *refusal) kind() oip.Kind {
	switch e.status {
	case http.StatusRequestTimeout:
		return oip.Deadline
	case http.StatusUnsupportedMediaType:
		return oip.Unsupported
	}
	return oip.Invalid
}

// exchange is one request and its response.
type exchange struct {
	h       *Handler
	w       http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	started bool          // the response has
	spent   time.Duration // in writing the response
	due     int64         // bytes that the client was to take in that time
	dead    bool          // nothing more comes from the client
	span    *traces.Span
	probe   bool // the request asks whether one would be served
}

// start sets the time that the client has to take a response of n bytes, and its status.
func (x *exchange) start(status int, n int) {
	x.started = true
	x.allow(int64(n))
	x.w.WriteHeader(status)
}

// allow lets the client take so many bytes more, at the least speed, after the grace that it
// has once. What the server takes to make or compress them is not its time.
func (x *exchange) allow(n int64) {
	x.due += n
	// A connection that cannot have deadlines is one of a test.
	_ = x.control.SetWriteDeadline(time.Now().Add(x.h.o.Grace + perBytes(x.due, x.h.o.MinRate) - x.spent))
}

// put writes what the client is allowed to take.
func (x *exchange) put(p []byte) (int, error) {
	x.allow(int64(len(p)))
	began := time.Now()
	n, err := x.w.Write(p)
	x.spent += time.Since(began)
	return n, err
}

// json answers with a value in JSON.
func (x *exchange) json(b []byte) {
	header := x.w.Header()
	header[contentType] = typeJSON
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	x.start(http.StatusOK, len(b))
	_, _ = x.w.Write(b) // a client that is gone hears nothing
}

// ok answers with nothing.
func (x *exchange) ok() { x.start(http.StatusOK, 0) }

// fail answers with an error, unless the response has begun: then the connection ends, which
// is all that can be told.
func (x *exchange) fail(err error) {
	var status int
	var message string
	var wait time.Duration
	var kind oip.Kind
	header := x.w.Header()
	if e, ok := errors.AsType[*refusal](err); ok {
		status, message, kind = e.status, e.message, e.kind()
		if e.allow != "" {
			header["Allow"] = []string{e.allow}
		}
	} else {
		e := oip.As(err)
		status, message, wait, kind = e.Kind.HTTP(), e.Message, e.RetryAfter, e.Kind
		if e.Kind == oip.Busy {
			wait = max(wait, time.Second)
		}
	}
	if !x.probe {
		x.h.o.Engine.Refused(kind)
	}
	level := slog.LevelDebug
	if own, ok := errors.AsType[*oip.Error](err); status == http.StatusInternalServerError && !(ok && own.Logged) {
		level = slog.LevelError
	}
	x.h.o.Log.Log(x.r.Context(), level, "request refused", "method", x.r.Method, "path", x.r.URL.Path, "status", status, "error", err)
	if x.started {
		panic(http.ErrAbortHandler)
	}
	if wait > 0 {
		header["Retry-After"] = []string{strconv.Itoa(int((wait + time.Second - 1) / time.Second))}
	}
	if x.dead {
		header["Connection"] = []string{"close"}
	} else {
		x.drain()
	}
	b := append(appendString(append(make([]byte, 0, 256), `{"error":`...), message), '}')
	header[contentType] = typeJSON
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	x.start(status, len(b))
	_, _ = x.w.Write(b)
}

// appendString appends a string in JSON; what is not UTF-8 in it is replaced.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}
