package rest

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
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

// refusal is an error with a status that the protocol does not define.
type refusal struct {
	status  int
	message string
	allow   string // methods
	err     error  // for the log
}

func (e *refusal) Error() string { return e.message }
func (e *refusal) Unwrap() error { return e.err }

// kind returns the nearest kind of the protocol, for the counters.
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
	started bool          // the response has begun
	spent   time.Duration // time spent in writing the response
	due     int64         // bytes that the client had to read in that time
	dead    bool          // the connection cannot be read any more
	probe   bool          // the request is a health probe, whose errors are not counted
}

// start sends the status, and sets the time in which the client must read n bytes.
func (x *exchange) start(status int, n int) {
	x.started = true
	x.allow(int64(n))
	x.w.WriteHeader(status)
}

// allow lets the client read n bytes more, at the minimum rate, after a grace period for the whole
// response. Time that the server takes to produce them does not count.
func (x *exchange) allow(n int64) {
	x.due += n
	// Connections without deadlines exist in tests only.
	_ = x.control.SetWriteDeadline(time.Now().Add(x.h.o.Grace + perBytes(x.due, x.h.o.MinRate) - x.spent))
}

// put writes bytes that the client must read in time.
func (x *exchange) put(p []byte) (int, error) {
	x.allow(int64(len(p)))
	began := time.Now()
	n, err := x.w.Write(p)
	x.spent += time.Since(began)
	return n, err
}

// json responds with JSON.
func (x *exchange) json(b []byte) {
	header := x.w.Header()
	header[contentType] = typeJSON
	header["Content-Length"] = []string{strconv.Itoa(len(b))}
	x.start(http.StatusOK, len(b))
	_, _ = x.w.Write(b) // an error means that the client is gone
}

// ok responds with an empty body.
func (x *exchange) ok() { x.start(http.StatusOK, 0) }

// fail responds with an error. If the response has begun, it ends the connection.
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

// appendString appends a string in JSON. Bytes that are not UTF-8 are replaced.
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
