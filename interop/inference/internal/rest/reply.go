package rest

import (
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
)

// piece is the number of bytes of a response that are encoded and written at a time, and that a
// client reads within one deadline.
const piece = 256 << 10

// leastEncoded is the size of the smallest response that is compressed, in bytes.
const leastEncoded = 1 << 10

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
func (x *exchange) reply(request *engine.Request, head *header, version string, results []engine.Result) error {
	meta := request.Model().Meta()
	if version == "" {
		version = meta.Versions[len(meta.Versions)-1]
	}
	memory := buffers.Get().(*[]byte)
	a := answer{x: x, head: head, model: meta.Name, version: version, results: results, b: (*memory)[:0]}
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
	encoder := x.encoder(length, binary)
	if encoder == nil && length >= 0 {
		header["Content-Length"] = []string{strconv.FormatInt(length+int64(binary), 10)}
	}
	x.start(http.StatusOK, 0)
	a.to = paced{x}
	if encoder != nil {
		a.to = encoder
		defer encoder.release()
	}
	if numbers {
		a.json()
	}
	a.write(a.b)
	for i := range results {
		if !results[i].InRegion && a.binary(i) {
			a.write(results[i].Bytes())
		}
	}
	if encoder != nil && a.err == nil {
		a.err = encoder.Close()
	}
	return nil // an error means that the client is gone
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
	if len(a.head.outputs) == 0 {
		return a.head.binary(nil)
	}
	return a.head.binary(&a.head.outputs[i])
}

// json appends the JSON of the response to b, and sends b when it is full.
func (a *answer) json() {
	b := append(a.b, `{"model_name":`...)
	b = appendString(b, a.model)
	b = append(b, `,"model_version":`...)
	b = appendString(b, a.version)
	if a.head.id != "" {
		b = append(b, `,"id":`...)
		b = append(b, a.head.id...)
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
		p := &a.head.outputs[i].params
		b = append(b, `,"parameters":{"shared_memory_region":`...)
		b = appendString(b, p.region)
		b = append(b, `,"shared_memory_byte_size":`...)
		b = strconv.AppendUint(b, r.Size(), 10)
		if p.offset != 0 {
			b = append(b, `,"shared_memory_offset":`...)
			b = strconv.AppendInt(b, p.offset, 10)
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

// encoder compresses a response.
type encoder struct {
	io.WriteCloser
	release func()
}

// Compressors take almost 1 MiB each, so they are reused.
var (
	gzips = sync.Pool{New: func() any { w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return w }}
	zlibs = sync.Pool{New: func() any { w, _ := zlib.NewWriterLevel(nil, zlib.BestSpeed); return w }}
)

// encoder returns the encoder of a response, nil for none. length is that of the JSON, -1 if it is
// unknown.
func (x *exchange) encoder(length int64, binary uint64) *encoder {
	if length >= 0 && uint64(length)+binary < leastEncoded {
		return nil
	}
	how := x.accepted()
	if how == identity {
		return nil
	}
	x.w.Header()["Content-Encoding"] = []string{how.String()}
	x.w.Header()["Vary"] = []string{"Accept-Encoding"}
	if how == gzipped {
		w := gzips.Get().(*gzip.Writer)
		w.Reset(paced{x})
		return &encoder{w, func() { w.Reset(nil); gzips.Put(w) }}
	}
	w := zlibs.Get().(*zlib.Writer)
	w.Reset(paced{x})
	return &encoder{w, func() { w.Reset(nil); zlibs.Put(w) }}
}

// accepted returns the coding in Accept-Encoding if the header contains exactly one.
func (x *exchange) accepted() coding {
	values := x.r.Header["Accept-Encoding"]
	if x.h.o.NoEncoder || len(values) != 1 {
		return identity
	}
	switch strings.ToLower(strings.TrimSpace(values[0])) {
	case "gzip", "x-gzip":
		return gzipped
	case "deflate":
		return deflated
	}
	return identity
}
