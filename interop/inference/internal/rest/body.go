package rest

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// headerLength is the header with the length of the JSON, if binary tensors follow.
const headerLength = "Inference-Header-Content-Length"

// coding reports whether the coding of that name is gzip, and whether it is gzip or none.
func coding(name string) (zipped, ok bool) {
	name = strings.ToLower(strings.TrimSpace(name))
	zipped = name == "gzip" || name == "x-gzip"
	return zipped, zipped || name == "" || name == "identity"
}

// body is the body of a request, which may be compressed.
type body struct {
	x       *exchange
	length  int64 // Content-Length; -1 for a body in chunks
	json    int64 // bytes of the JSON, decompressed; -1: the whole body
	charged int64 // bytes of the JSON that are taken from the budget
	zipped  bool
	until   time.Time     // the end of the request
	in      io.Reader     // the body as it was sent
	coded   *bufio.Reader // of in, and
	decoder *gzip.Reader  // of coded, for zipped; nil before the first byte
}

// errTrailing is the error of bytes after compressed data.
var errTrailing = errors.New("bytes after the compressed data")

// open checks the headers of a body of at most some bytes, and reads none of it. Errors: Invalid, Unsupported,
// TooLarge.
func (x *exchange) open(most int64) (*body, error) {
	r, limits := x.r, &x.h.limits
	encoding := strings.Join(r.Header["Content-Encoding"], ", ")
	zipped, ok := coding(encoding)
	if !ok {
		return nil, &oip.Error{Kind: oip.Unsupported, Status: http.StatusUnsupportedMediaType,
			Message: "Content-Encoding " + oip.Quote(encoding) + " is not served: gzip or none"}
	}
	b := &body{x: x, zipped: zipped, length: r.ContentLength, json: -1, until: time.Now().Add(x.h.engine.Options.Timeout),
		in: http.MaxBytesReader(x.w, r.Body, most)}
	if text := r.Header[headerLength]; len(text) > 0 {
		n, err := strconv.ParseUint(text[0], 10, 63)
		if err != nil || len(text) > 1 {
			return nil, oip.Errorf(oip.Invalid, "%s %s is not a length in bytes", headerLength, oip.Quote(strings.Join(text, ", ")))
		}
		b.json = int64(n)
		if !zipped && b.length >= 0 && b.json > b.length {
			return nil, oip.Errorf(oip.Invalid, "%s %d is more than the Content-Length of %d", headerLength, b.json, b.length)
		}
	} else if !zipped {
		b.json = b.length
	}
	if b.length > most {
		return nil, oip.Errorf(oip.TooLarge, "a body of %d bytes: at most %d are served here", b.length, most)
	}
	if b.json > limits.json {
		return nil, oip.Errorf(oip.TooLarge, "JSON of %d bytes: at most %d are served", b.json, limits.json)
	}
	if r.Header.Get("Expect") != "" { // the first read sends "100 Continue", which the client may not read
		_ = x.w.control.SetWriteDeadline(time.Now().Add(limits.grace))
	}
	return b, nil
}

// afterJSON returns the number of bytes after the JSON; -1 if it is unknown because the body is compressed or
// in chunks.
func (b *body) afterJSON() int64 {
	if b.zipped || b.length < 0 {
		return -1
	}
	return b.length - b.json
}

// expect sets the deadline for the next n bytes. It is called when they have memory: the client's time does not
// run before.
func (b *body) expect(n int64) {
	limits := &b.x.h.limits
	deadline := time.Now().Add(limits.grace + limits.time(n))
	if b.until.Before(deadline) {
		deadline = b.until
	}
	_ = b.x.w.control.SetReadDeadline(deadline) // an error means that the client is gone
}

// Read reads the decompressed body.
func (b *body) Read(p []byte) (n int, err error) {
	if !b.zipped {
		return b.in.Read(p)
	}
	if b.decoder == nil {
		b.coded = bufio.NewReader(b.in)
		if b.decoder, err = gzip.NewReader(b.coded); err != nil {
			return 0, err
		}
		b.decoder.Multistream(false)
	}
	n, err = b.decoder.Read(p)
	for n == 0 && err == io.EOF { //nolint:errorlint // as gzip gives it at the end of each of its members
		if _, end := b.coded.Peek(1); end != nil {
			return 0, end
		}
		err = b.decoder.Reset(b.coded)
		if errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, errTrailing
		}
		if err != nil {
			return 0, err
		}
		b.decoder.Multistream(false)
		n, err = b.decoder.Read(p)
	}
	if n > 0 && err == io.EOF { //nolint:errorlint // likewise
		err = nil
	}
	return n, err
}

// full reads len(p) bytes of the decompressed body.
func (b *body) full(p []byte) error {
	b.expect(int64(len(p)))
	if _, err := io.ReadFull(b, p); err != nil {
		return b.clientError(err)
	}
	return nil
}

// text reads the JSON. Its memory is charged first, until free.
func (b *body) text() ([]byte, error) {
	if b.json >= 0 {
		if err := b.charge(b.json); err != nil {
			return nil, err
		}
		p := make([]byte, b.json)
		return p, b.full(p)
	}
	// Of unknown length: the memory is doubled until the body ends.
	var p []byte
	most := b.x.h.limits.json
	for room := int64(4 << 10); int64(len(p)) <= most; room = min(2*room, most+1) {
		if err := b.charge(room); err != nil { // in addition to the old memory, until that is copied
			return nil, err
		}
		p = append(make([]byte, 0, room), p...)
		b.expect(room)
		for len(p) < cap(p) {
			n, err := b.Read(p[len(p):cap(p)])
			p = p[:len(p)+n]
			if errors.Is(err, io.EOF) {
				return p, nil
			}
			if err != nil {
				return nil, b.clientError(err)
			}
		}
	}
	return nil, oip.Errorf(oip.TooLarge, "JSON of more than %d bytes", most)
}

func (b *body) charge(n int64) error {
	if b.charged == 0 && n <= spared {
		return nil
	}
	if !b.x.h.heap.TryAcquire(n) {
		return &oip.Error{Kind: oip.Busy, Message: "too much JSON is being served", RetryAfter: time.Second}
	}
	b.charged += n
	return nil
}

// free ends the charge of the JSON, which must not be used any more. It may be called again.
func (b *body) free() {
	if b.charged > 0 {
		b.x.h.heap.Release(b.charged)
		b.charged = 0
	}
}

// finish checks that the body ends here, and that it is complete.
func (b *body) finish() error {
	var one [1]byte
	b.expect(1)
	n, err := io.ReadFull(b, one[:])
	if n > 0 {
		return oip.Errorf(oip.Invalid, "the body is longer than its JSON and tensors")
	}
	if !errors.Is(err, io.EOF) {
		return b.clientError(err)
	}
	// The model may take longer than the body.
	_ = b.x.w.control.SetReadDeadline(time.Time{})
	return nil
}

// clientError returns the error for the client of a body that was not read to its end.
func (b *body) clientError(err error) error {
	tooLarge, _ := errors.AsType[*http.MaxBytesError](err)
	_, corrupt := errors.AsType[flate.CorruptInputError](err)
	_, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errTrailing):
		return &oip.Error{Kind: oip.Invalid, Message: "the body has bytes after its compressed data", Err: err}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &oip.Error{Kind: oip.Invalid, Message: "the body is shorter than its JSON and tensors", Err: err}
	case errors.Is(err, gzip.ErrHeader):
		return &oip.Error{Kind: oip.Invalid, Message: "the body is not compressed as its Content-Encoding says", Err: err}
	case corrupt, errors.Is(err, gzip.ErrChecksum):
		return &oip.Error{Kind: oip.Invalid, Message: "the compressed body is corrupt", Err: err}
	}
	b.x.dead = true
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &oip.Error{Kind: oip.Deadline, Status: http.StatusRequestTimeout, Message: "the body arrived too slowly", Err: err}
	case tooLarge != nil:
		return oip.Errorf(oip.TooLarge, "a body of more than %d bytes", tooLarge.Limit)
	case isNet:
		return &oip.Error{Kind: oip.Cancelled, Message: "the body was cut off", Err: err}
	}
	return &oip.Error{Kind: oip.Invalid, Message: "the chunks of the body are not valid", Err: err}
}

// drain reads the rest of the body of a refused request, if it is short and arrives soon: a client may
// read the response only after it has sent the body.
func (x *exchange) drain() {
	if x.r.ContentLength == 0 || x.r.ContentLength > maxDrained || x.r.Context().Err() != nil {
		return
	}
	if x.r.Header.Get("Expect") != "" { // the client waits for "100 Continue"
		return
	}
	_ = x.w.control.SetReadDeadline(time.Now().Add(min(drainTime, x.h.limits.grace)))
	_, _ = io.CopyN(io.Discard, x.r.Body, maxDrained) // the deadline remains, because net/http may read on
}
