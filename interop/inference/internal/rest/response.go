package rest

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

var typeBinary = []string{"application/octet-stream"}

// answer is the response to an inference.
type answer struct {
	head    *header
	model   oip.Model
	results []engine.Result

	b    []byte // JSON to be sent
	sent int64  // bytes of JSON that were sent
	to   io.Writer
	err  error
}

// reply responds with results. Long JSON is sent while it is formatted. If binary data follows, the
// length of the JSON must be known first, so long JSON is formatted twice.
func (x *exchange) reply(request *engine.Request, head *header, results []engine.Result) {
	a := answer{head: head, model: request.Model().Meta(), results: results, b: make([]byte, 0, 512)}
	size, binary, numbers := int64(0), false, false
	for i := range results {
		switch {
		case results[i].InRegion:
		case head.inJSON(i):
			numbers = true
		default:
			size, binary = size+int64(results[i].Size), true
		}
	}
	length := int64(-1) // of the JSON, if it is known
	if binary || !numbers {
		a.to = io.Discard
		a.json()
		length = a.sent + int64(len(a.b))
	}
	header := x.w.Header()
	header[contentType] = typeJSON
	if binary {
		header[contentType] = typeBinary
		header[headerLength] = []string{strconv.FormatInt(length, 10)}
	}
	a.to = x.w
	var packed *gzip.Writer
	if x.zips() && (length < 0 || length+size >= leastEncoded) {
		header["Content-Encoding"] = []string{"gzip"}
		header["Vary"] = []string{"Accept-Encoding"}
		packed = encoders.Get().(*gzip.Writer)
		defer func() { packed.Reset(nil); encoders.Put(packed) }()
		packed.Reset(a.to)
		a.to = packed
	} else if length >= 0 {
		header["Content-Length"] = []string{strconv.FormatInt(length+size, 10)}
	}
	x.w.WriteHeader(http.StatusOK)
	if length < 0 || a.sent > 0 { // b does not have the whole JSON
		a.b = a.b[:0]
		a.json()
	}
	a.write(a.b)
	for i := range results {
		if !head.inJSON(i) {
			a.write(results[i].Bytes)
		}
	}
	if packed != nil && a.err == nil {
		_ = packed.Close() // an error means that the client is gone
	}
}

// encoders are reused, because each takes almost 1 MiB.
var encoders = sync.Pool{New: func() any { w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed); return w }}

// zips reports whether Accept-Encoding contains exactly one coding, gzip.
func (x *exchange) zips() bool {
	values := x.r.Header["Accept-Encoding"]
	if len(values) != 1 {
		return false
	}
	zipped, _ := coding(values[0])
	return zipped
}

// write sends bytes, unless an earlier write has failed.
func (a *answer) write(p []byte) {
	if a.err == nil && len(p) > 0 {
		_, a.err = a.to.Write(p)
	}
}

// json appends the JSON of the response to b, and sends b when it is full.
func (a *answer) json() {
	b := append(a.b, `{"model_name":`...)
	b = appendString(b, a.model.Name)
	b = append(b, `,"model_version":`...)
	b = appendString(b, a.model.Versions[0])
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
		b = strconv.AppendUint(b, r.Size, 10)
		if p.Offset != 0 {
			b = append(b, `,"shared_memory_offset":`...)
			b = strconv.AppendUint(b, p.Offset, 10)
		}
		b = append(b, '}')
	case a.head.inJSON(i):
		b = append(b, `,"data":[`...)
		b = a.numbers(b, r)
		b = append(b, ']')
	default:
		b = append(b, `,"parameters":{"binary_data_size":`...)
		b = strconv.AppendUint(b, r.Size, 10)
		b = append(b, '}')
	}
	return append(b, '}')
}

// numbers appends the elements of a result, some thousands at a time.
func (a *answer) numbers(b []byte, r *engine.Result) []byte {
	rest, some := r.Bytes, 4096*r.Datatype.Size()
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

// appendString appends a string in JSON. Bytes that are not UTF-8 are replaced.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
