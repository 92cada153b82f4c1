package rest

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
)

// maxDrained is the number of bytes of a refused body that are read, and drainTime the time for that: a
// client may read the response only after it has sent the body.
const (
	maxDrained = 4 << 20
	drainTime  = 2 * time.Second
)

// perBytes returns the time for n bytes at a rate, in bytes per second.
func perBytes(n, rate int64) time.Duration {
	if n >= math.MaxInt64/int64(time.Second) {
		n = math.MaxInt64/int64(time.Second) - 1
	}
	return time.Duration(n * int64(time.Second) / rate)
}

// coding is a Content-Encoding.
type coding uint8

const (
	identity coding = iota
	gzipped
	deflated // the format of zlib (RFC 9110)
)

func (c coding) String() string { return [...]string{"identity", "gzip", "deflate"}[c] }

// body is the body of a request, which arrives at a minimum rate and may be compressed.
type body struct {
	x       *exchange
	from    io.ReadCloser // the connection
	end     time.Time     // when the client must have sent the body
	last    time.Time     // the end of the last read
	until   time.Time     // the end of the request
	set     time.Time     // the deadline of the connection
	failed  error         // of the connection
	coding  coding
	length  int64 // Content-Length
	json    int64 // bytes of the JSON, decompressed; -1: the whole body
	decoder io.ReadCloser
	packed  *bufio.Reader // the input of decoder, which may end before the body does
}

// open checks the headers of a body and reads none of it. Errors: refusal, Invalid, TooLarge.
func (x *exchange) open(most int64) (*body, error) {
	r := x.r
	b := &body{x: x, from: r.Body, length: r.ContentLength, json: -1}
	if r.ContentLength < 0 {
		return nil, &refusal{status: http.StatusLengthRequired, message: "the request needs a Content-Length"}
	}
	switch encoding := strings.Join(r.Header["Content-Encoding"], ", "); strings.ToLower(encoding) {
	case "", "identity":
	case "gzip", "x-gzip":
		b.coding = gzipped
	case "deflate":
		b.coding = deflated
	default:
		return nil, &refusal{status: http.StatusUnsupportedMediaType, message: "Content-Encoding " + oip.Quote(encoding) + " is not served: gzip, deflate or none"}
	}
	if text := r.Header[headerLength]; len(text) > 0 {
		n, err := strconv.ParseUint(text[0], 10, 63)
		if err != nil || len(text) > 1 {
			return nil, oip.Errorf(oip.Invalid, "%s %s is no length in bytes", headerLength, oip.Quote(strings.Join(text, ", ")))
		}
		b.json = int64(n)
		if b.coding == identity && b.json > b.length {
			return nil, oip.Errorf(oip.Invalid, "%s %d is more than the Content-Length of %d", headerLength, b.json, b.length)
		}
	} else if b.coding == identity {
		b.json = b.length
	}
	if b.length > most {
		return nil, oip.Errorf(oip.TooLarge, "a body of %d bytes: at most %d are served here", b.length, most)
	}
	if n := max(b.json, 0); n > x.h.o.MaxJSON {
		return nil, oip.Errorf(oip.TooLarge, "JSON of %d bytes: at most %d are served", n, x.h.o.MaxJSON)
	}
	b.until = time.Now().Add(x.h.o.Timeout)
	return b, nil
}

// behind returns the number of bytes after the JSON; -1 if it is unknown because the body is
// compressed.
func (b *body) behind() int64 {
	if b.coding != identity {
		return -1
	}
	return b.length - b.json
}

// endBy ends the reading of the body at a time at the latest.
func (b *body) endBy(t time.Time) {
	if t.Before(b.until) {
		b.until = t
	}
}

// maxRead bounds the bytes of one read, so that the deadline is checked between reads.
const maxRead = 1 << 20

// Read reads from the connection. The client has Options.Grace and the time for the whole body at
// Options.MinRate. Time that the server spends between two reads, to decompress or to wait for memory,
// is added.
func (b *body) Read(p []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	o, now := &b.x.h.o, time.Now()
	first := b.end.IsZero()
	if first {
		b.end = now.Add(o.Grace + perBytes(b.length, o.MinRate))
	} else {
		b.end = b.end.Add(now.Sub(b.last))
	}
	limit := b.end
	if b.until.Before(limit) {
		limit = b.until
	}
	if first || limit.Before(b.set) || limit.Sub(b.set) > o.Grace/4 {
		b.set = limit
		_ = b.x.control.SetReadDeadline(limit) // fails on connections without deadlines, in tests
	}
	if first && b.x.r.Header.Get("Expect") != "" {
		// The first read writes "100 Continue", to a client that may not read it.
		_ = b.x.control.SetWriteDeadline(now.Add(o.Grace))
	}
	n, err := b.from.Read(p[:min(len(p), maxRead)])
	b.last = time.Now()
	if err != nil && err != io.EOF {
		b.failed = err
	}
	return n, err
}

// reader returns a reader of the decompressed body.
func (b *body) reader() (io.Reader, error) {
	if b.coding == identity {
		return b, nil
	}
	if b.decoder == nil {
		var err error
		if b.coding == gzipped {
			b.decoder, err = gzip.NewReader(b)
		} else {
			b.packed = bufio.NewReader(b) // zlib would hide the unread bytes of its own reader
			b.decoder, err = zlib.NewReader(b.packed)
		}
		if err != nil {
			b.decoder = nil
			return nil, b.clientError(err)
		}
	}
	return b.decoder, nil
}

// full reads len(p) bytes of the decompressed body.
func (b *body) full(p []byte) error {
	r, err := b.reader()
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(r, p); err != nil {
		return b.clientError(err)
	}
	return nil
}

// text reads the JSON. Each byte is charged to the gate before it is read; give ends the charge.
func (b *body) text(g *gate, tenant string) (p []byte, give func(), err error) {
	charged := int64(0)
	give = func() { g.give(tenant, charged); charged = 0 }
	grow := func(n int64) error {
		if err := g.take(tenant, n, charged); err != nil {
			return err
		}
		charged += n
		return nil
	}
	if b.json >= 0 {
		if err := grow(b.json); err != nil {
			return nil, give, err
		}
		p = make([]byte, b.json)
		return p, give, b.full(p)
	}
	// Compressed, and of unknown length: the memory is doubled until the body ends.
	r, err := b.reader()
	if err != nil {
		return nil, give, err
	}
	for room := int64(4 << 10); ; room *= 2 {
		room = min(room, b.x.h.o.MaxJSON+1)
		if err := grow(room); err != nil { // in addition to the old memory, until that is copied
			return p, give, err
		}
		next := make([]byte, room)
		copied := copy(next, p)
		n, err := io.ReadFull(r, next[copied:])
		p = next[:copied+n]
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF && b.failed == nil && atEnd(r):
			return p, give, nil
		case err != nil:
			return p, give, b.clientError(err)
		case room > b.x.h.o.MaxJSON:
			return p, give, oip.Errorf(oip.TooLarge, "JSON of more than %d bytes, uncompressed", b.x.h.o.MaxJSON)
		}
	}
}

// atEnd reports whether a reader is at its end, and was not cut off.
func atEnd(r io.Reader) bool {
	var one [1]byte
	n, err := r.Read(one[:])
	return n == 0 && err == io.EOF
}

// finish checks that the body ends here, and that it is complete.
func (b *body) finish() error {
	r, err := b.reader()
	if err != nil {
		return err
	}
	var one [1]byte
	n, err := io.ReadFull(r, one[:])
	if b.packed != nil && errors.Is(err, io.EOF) {
		n, err = io.ReadFull(b.packed, one[:])
	}
	if n > 0 {
		return oip.Errorf(oip.Invalid, "the body is longer than its JSON and tensors")
	}
	if !errors.Is(err, io.EOF) {
		return b.clientError(err)
	}
	// The model may take longer than the body.
	_ = b.x.control.SetReadDeadline(time.Time{})
	return nil
}

// clientError returns the error for the client of a body that was not read to its end.
func (b *body) clientError(err error) error {
	b.x.dead = b.x.dead || b.failed != nil
	switch {
	case errors.Is(b.failed, os.ErrDeadlineExceeded):
		return &refusal{status: http.StatusRequestTimeout, message: "the body arrived too slowly", err: b.failed}
	case b.failed != nil:
		return &oip.Error{Kind: oip.Cancelled, Message: "the body was cut off", Err: b.failed}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &oip.Error{Kind: oip.Invalid, Message: "the body is shorter than its JSON and tensors", Err: err}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrDictionary):
		return &oip.Error{Kind: oip.Invalid, Message: "the body is not compressed as its Content-Encoding says", Err: err}
	}
	return &oip.Error{Kind: oip.Invalid, Message: "the compressed body is corrupt", Err: err}
}

// drain reads the rest of the body of a refused request, if it is short and arrives soon.
func (x *exchange) drain() {
	if x.r.ContentLength <= 0 || x.r.ContentLength > maxDrained || x.r.Context().Err() != nil {
		return
	}
	if x.r.Header.Get("Expect") != "" { // the client waits for "100 Continue"
		return
	}
	_ = x.control.SetReadDeadline(time.Now().Add(min(drainTime, x.h.o.Grace)))
	_, _ = io.Copy(io.Discard, x.r.Body) // the deadline remains, because net/http may read on
}

// gate bounds the bytes of Go's heap that the JSON of all requests takes, and of each tenant, so
// that others are served while one sends slowly.
type gate struct {
	limit int64
	each  int64 // of one tenant
	mu    sync.Mutex
	used  int64
	by    map[string]int64 // tenants that have some
}

// spared is the size up to which JSON is always accepted: connections are bounded, and large bodies
// must not keep out small ones.
const spared = 16 << 10

// take charges n bytes to a tenant, for a request that has had bytes already. Errors: Busy.
func (g *gate) take(tenant string, n, had int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if had+n > spared && (g.used+n > g.limit || g.by[tenant]+n > g.each) {
		return &oip.Error{Kind: oip.Busy, Message: "too much JSON is being served", RetryAfter: time.Second}
	}
	if g.by == nil {
		g.by = map[string]int64{}
	}
	g.used += n
	g.by[tenant] += n
	return nil
}

func (g *gate) give(tenant string, n int64) {
	if n == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used -= n
	if g.by[tenant] -= n; g.by[tenant] == 0 {
		delete(g.by, tenant)
	}
}

func (g *gate) inUse() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used
}
