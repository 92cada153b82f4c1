package rest

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
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
func (x *exchange) ok() error {
	x.start(http.StatusOK, 0)
	return nil
}

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

// piece is the number of bytes of a response that are encoded and written at a time, and that a
// client reads within one deadline.
const piece = 256 << 10

// buffers are for the JSON of responses.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// answer is the response to an inference.
type answer struct {
	x       *exchange
	head    *header
	model   string
	version string
	results []engine.Result

	b    []byte // JSON to be sent
	sent int64  // bytes of JSON that were sent
	to   io.Writer
	err  error
}

// reply responds with results. JSON without numbers is made in memory. Numbers are sent while they
// are formatted. If binary data follows, the length of the JSON must be known first, so the numbers
// are formatted twice.
func (x *exchange) reply(request *engine.Request, head *header, results []engine.Result) error {
	meta := request.Model().Meta()
	memory := buffers.Get().(*[]byte)
	a := answer{x: x, head: head, model: meta.Name, version: meta.Versions[0], results: results, b: (*memory)[:0]}
	defer func() {
		if cap(a.b) <= piece*2 {
			*memory = a.b
			buffers.Put(memory)
		}
	}()
	binary, numbers := uint64(0), false
	anyBinary := false
	for i := range results {
		switch {
		case results[i].InRegion:
		case a.binary(i):
			binary, anyBinary = binary+results[i].Size(), true
		default:
			numbers = true
		}
	}
	length := int64(-1) // of the JSON, if it is known
	switch {
	case !numbers:
		a.json()
		length = int64(len(a.b))
	case anyBinary:
		a.to = io.Discard
		a.json()
		length = a.sent + int64(len(a.b))
		a.b, a.sent = a.b[:0], 0
	}
	header := x.w.Header()
	header[contentType] = typeJSON
	if anyBinary {
		header[contentType] = typeBinary
		header[headerLength] = []string{strconv.FormatInt(length, 10)}
	}
	a.to = paced{x}
	how := x.accepted()
	if length >= 0 && length+int64(binary) < leastEncoded {
		how = identity
	}
	var packed encoder
	if how != identity {
		header["Content-Encoding"] = []string{how.String()}
		header["Vary"] = []string{"Accept-Encoding"}
		packed = encoders[how].Get().(encoder)
		defer func() { packed.Reset(nil); encoders[how].Put(packed) }()
		packed.Reset(a.to)
		a.to = packed
	} else if length >= 0 {
		header["Content-Length"] = []string{strconv.FormatInt(length+int64(binary), 10)}
	}
	x.start(http.StatusOK, 0)
	if numbers {
		a.json()
	}
	a.write(a.b)
	for i := range results {
		if !results[i].InRegion && a.binary(i) {
			a.write(results[i].Bytes())
		}
	}
	if packed != nil && a.err == nil {
		a.err = packed.Close()
	}
	return nil // an error means that the client is gone
}

// leastEncoded is the size of the smallest response that is compressed, in bytes.
const leastEncoded = 1 << 10

// encoder compresses a response.
type encoder interface {
	io.WriteCloser
	Reset(to io.Writer)
}

// encoders are reused, because each takes almost 1 MiB.
var encoders = [...]sync.Pool{
	gzipped:  {New: func() any { w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return w }},
	deflated: {New: func() any { w, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed); return w }},
}

// accepted returns the coding in Accept-Encoding if the header contains exactly one.
func (x *exchange) accepted() coding {
	if values := x.r.Header["Accept-Encoding"]; len(values) == 1 {
		switch strings.ToLower(strings.TrimSpace(values[0])) {
		case "gzip", "x-gzip":
			return gzipped
		case "deflate":
			return deflated
		}
	}
	return identity
}

// paced writes to the client, which must read each piece in time.
type paced struct{ x *exchange }

func (w paced) Write(p []byte) (n int, err error) {
	for len(p) > piece {
		m, err := w.x.put(p[:piece])
		if n += m; err != nil {
			return n, err
		}
		p = p[piece:]
	}
	m, err := w.x.put(p)
	return n + m, err
}

// write sends bytes, unless an earlier write has failed.
func (a *answer) write(p []byte) {
	if a.err == nil && len(p) > 0 {
		_, a.err = a.to.Write(p)
	}
}

func (a *answer) binary(i int) bool {
	if len(a.head.Outputs) == 0 {
		return a.head.binary(nil)
	}
	return a.head.binary(&a.head.Outputs[i])
}

// json appends the JSON of the response to b, and sends b when it is full.
func (a *answer) json() {
	b := append(a.b, `{"model_name":`...)
	b = appendString(b, a.model)
	b = append(b, `,"model_version":`...)
	b = appendString(b, a.version)
	if a.head.ID.text != nil {
		b = append(b, `,"id":`...)
		b = append(b, a.head.ID.text...)
	}
	b = append(b, `,"outputs":[`...)
	for i := range a.results {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.output(b, i)
	}
	a.b = append(b, "]}"...)
}

func (a *answer) output(b []byte, i int) []byte {
	r := &a.results[i]
	b = append(b, `{"name":`...)
	b = appendString(b, r.Name)
	b = append(b, `,"datatype":"`...)
	b = append(b, r.Datatype.String()...)
	b = append(b, `","shape":[`...)
	for j, extent := range r.Shape {
		if j > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, extent, 10)
	}
	b = append(b, ']')
	switch {
	case r.InRegion:
		p := &a.head.Outputs[i].Params
		b = append(b, `,"parameters":{"shared_memory_region":`...)
		b = appendString(b, p.Region)
		b = append(b, `,"shared_memory_byte_size":`...)
		b = strconv.AppendUint(b, r.Size(), 10)
		if p.Offset != 0 {
			b = append(b, `,"shared_memory_offset":`...)
			b = strconv.AppendUint(b, p.Offset, 10)
		}
		b = append(b, '}')
	case a.binary(i):
		b = append(b, `,"parameters":{"binary_data_size":`...)
		b = strconv.AppendUint(b, r.Size(), 10)
		b = append(b, '}')
	default:
		b = append(b, `,"data":[`...)
		b = a.numbers(b, r)
		b = append(b, ']')
	}
	return append(b, '}')
}

// numbers appends the elements of a result, some thousands at a time.
func (a *answer) numbers(b []byte, r *engine.Result) []byte {
	rest, some := r.Bytes(), 4096*r.Datatype.Size()
	for len(rest) > 0 && a.err == nil {
		n := min(len(rest), some)
		b = appendElements(b, r.Datatype, rest[:n])
		if rest = rest[n:]; len(rest) > 0 {
			b = append(b, ',')
		}
		if len(b) >= piece {
			a.write(b)
			a.sent += int64(len(b))
			b = b[:0]
		}
	}
	return b
}
