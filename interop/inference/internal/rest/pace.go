package rest

import (
	"io"
	"math"
	"net/http"
	"time"
)

// A client must send and read bodies at limits.rate, after limits.grace. Only the time of reads and
// writes counts. The server may need more time between them, to compress or to wait for memory.

// perBytes returns the time for n bytes at a rate, in bytes per second.
func perBytes(n, rate int64) time.Duration {
	if n >= math.MaxInt64/int64(time.Second) {
		n = math.MaxInt64/int64(time.Second) - 1
	}
	return time.Duration(n * int64(time.Second) / rate)
}

// pacedReader reads the body of a request from the connection.
type pacedReader struct {
	from    io.Reader
	control *http.ResponseController
	grace   time.Duration
	expect  bool          // the first read sends "100 Continue"
	left    time.Duration // of the client's time
	until   time.Time     // the end of the request
	set     time.Time     // the deadline of the connection
	err     error
}

// endBy ends the reading at a time at the latest.
func (r *pacedReader) endBy(t time.Time) {
	if t.Before(r.until) {
		r.until = t
	}
}

// Read implements io.Reader.
func (r *pacedReader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	now := time.Now()
	if r.expect { // the client may not read "100 Continue"
		r.expect = false
		_ = r.control.SetWriteDeadline(now.Add(r.grace)) // fails on connections without deadlines, in tests
	}
	deadline := now.Add(r.left)
	if r.until.Before(deadline) {
		deadline = r.until
	}
	// To set a deadline is slow. Keep it if the new one is hardly later.
	if later := deadline.Sub(r.set); later < 0 || later > r.grace/4 {
		r.set = deadline
		_ = r.control.SetReadDeadline(deadline)
	}
	n, err := r.from.Read(p)
	r.left -= time.Since(now)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// pacedWriter writes the body of a response to the client.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	rate    int64
	left    time.Duration // of the client's time
}

// Write implements io.Writer. The client must read each piece in time.
func (w *pacedWriter) Write(p []byte) (written int, err error) {
	for {
		n := min(len(p), piece)
		w.left += perBytes(int64(n), w.rate)
		now := time.Now()
		_ = w.control.SetWriteDeadline(now.Add(w.left))
		n, err = w.ResponseWriter.Write(p[:n])
		w.left -= time.Since(now)
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}
