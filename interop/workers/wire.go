package workers

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
)

// kind is the kind of a message.
type kind uint8

// Kinds of messages to a worker (to…) and from it (at…).
const (
	toSetup     kind = iota + 1 // a setup, the first
	toCall                      // table of arrays, function, arguments
	toCancel                    // on the control connection: interrupts the call with that number
	toQuit                      // on the control connection: exit when the running call has ended
	toTask                      // on the control connection: a task, with a number of its own
	atState                     // a progress
	atReady                     // the warm-up is done
	atFailed                    // a failure of the start; the last message
	atResult                    // arrays copied, bytes copied, table of arrays, value
	atError                     // a failure, of the call
	atTask                      // on the control connection: the text that a task returned
	atTaskError                 // on the control connection: a failure, of a task
	atMemory                    // on the control connection: bytes that the pools hold from the system
	lastKind    = atMemory
)

// The head of a message: the number of bytes that follow, the kind, the number of the call.
const headBytes = 4 + 1 + 8

type message struct {
	kind    kind
	call    uint64
	payload []byte // valid until the next one is read
}

// stream is what a wire needs of a connection: a *net.UnixConn in the Pool.
type stream interface {
	io.ReadWriter
	CloseRead() error
	CloseWrite() error
	Close() error
}

// wire is one end of a connection between a worker and its Pool. There are two: one for set-up, calls
// and answers, and the control connection, for messages during a call. One
// goroutine reads; any goroutine may write.
type wire struct {
	conn stream
	in   *bufio.Reader
	max  int
	buf  []byte

	writing sync.Mutex
	out     []byte // a short message
}

// slack is the number of bytes that a message may have beyond Config.MaxMessage, for names and the
// table of arrays.
const slack = 1 << 20

// maxShort is the size up to which a message is copied, to be written in one piece.
const maxShort = 16 << 10

func newWire(conn stream, limit int) *wire {
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), max: limit}
}

// send writes one message.
func (w *wire) send(k kind, call uint64, parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > w.max+slack {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed (Config.MaxMessage); pass long data as arrays", ErrTooLong, n, w.max)
	}
	w.writing.Lock()
	defer w.writing.Unlock()
	w.out = binary.LittleEndian.AppendUint32(w.out[:0], uint32(n))
	w.out = append(w.out, byte(k))
	w.out = binary.LittleEndian.AppendUint64(w.out, call)
	if n <= maxShort {
		for _, p := range parts {
			w.out = append(w.out, p...)
		}
		_, err := w.conn.Write(w.out)
		return err
	}
	b := net.Buffers{w.out}
	for _, p := range parts {
		if len(p) > 0 {
			b = append(b, p)
		}
	}
	_, err := b.WriteTo(w.conn)
	return err
}

func (w *wire) sendJSON(k kind, call uint64, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.send(k, call, b)
}

// most is the largest buffer that is allocated before its bytes have arrived.
const most = 1 << 20

// read reads one message. io.EOF is the end of the connection between two messages.
func (w *wire) read() (message, error) { return readMessage(w.in, &w.buf, w.max+slack) }

func readMessage(in io.Reader, buf *[]byte, limit int) (m message, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return m, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	m.kind, m.call = kind(head[4]), binary.LittleEndian.Uint64(head[5:])
	if m.kind == 0 || m.kind > lastKind {
		return m, fmt.Errorf("%w: kind %d", ErrMessage, m.kind)
	}
	if n > limit {
		return m, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrMessage, n, limit)
	}
	if cap(*buf) > most && n <= most/16 {
		*buf = nil // do not keep a large buffer
	}
	b := (*buf)[:0]
	for len(b) < n { // allocate as the bytes arrive, not by the announced length
		part := min(n-len(b), most)
		at := len(b)
		if cap(b)-at < part {
			grown := make([]byte, at, min(n, max(2*cap(b), at+part)))
			copy(grown, b)
			b = grown
		}
		b = b[:at+part]
		if _, err := io.ReadFull(in, b[at:]); err != nil {
			if err == io.EOF { //nolint:errorlint // as ReadFull gives it
				err = io.ErrUnexpectedEOF
			}
			return m, err
		}
	}
	*buf = b
	m.payload = b
	return m, nil
}

// progress describes how far the start of a worker is.
type progress struct {
	State string `json:"state"`
	Step  string `json:"step,omitempty"`
	Done  int    `json:"done,omitempty"` // steps of Warm
}

func parseJSON(m message, v any) error {
	if err := json.Unmarshal(m.payload, v); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return nil
}
