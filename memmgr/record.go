package memmgr

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/syclobj"
)

// Record notes every call: the last ones in a ring, and all of them in a log if
// there is a writer. The log is CSV in the columns of RMM's memory event log
// (Thread, Time, Action, Pointer, Size, Stream), so that tools for it read it;
// [Replay] runs it again. Go has no thread numbers worth writing: Thread is 0.
type Record struct {
	upstream Resource

	mu   sync.Mutex
	log  *bufio.Writer
	err  error
	ring []Event
	next uint64
}

// Event is one call of a recorded resource.
type Event struct {
	Time    time.Time
	Action  string // "allocate", "allocate failure" or "deallocate"
	Address uintptr
	Size    uintptr // as requested
	Queue   uintptr
}

// NewRecord records an upstream: the last ring calls, and all of them to log
// unless it is nil.
func NewRecord(upstream Resource, ring int, log io.Writer) *Record {
	r := &Record{upstream: upstream, ring: make([]Event, max(ring, 1))}
	if log != nil {
		r.log = bufio.NewWriter(log)
		_, r.err = r.log.WriteString("Thread,Time,Action,Pointer,Size,Stream\n")
	}
	return r
}

// Place implements [Resource].
func (r *Record) Place() *syclobj.Place { return r.upstream.Place() }

// Upstream returns the recorded resource.
func (r *Record) Upstream() Resource { return r.upstream }

// Allocate implements [Resource].
func (r *Record) Allocate(request Request) (Block, error) {
	b, err := r.upstream.Allocate(request)
	e := Event{Action: "allocate", Address: b.Address, Size: request.Size}
	if request.Queue != nil {
		e.Queue = uintptr(request.Queue.Ref())
	}
	if err != nil {
		e.Action = "allocate failure"
	}
	r.note(e)
	return b, err
}

// Free implements [Resource].
func (r *Record) Free(b Block) {
	// Noted before the memory can be given to somebody else, so that the log
	// is in an order that can have happened.
	r.note(Event{Action: "deallocate", Address: b.Address, Size: b.Requested, Queue: b.Queue})
	r.upstream.Free(b)
}

func (r *Record) note(e Event) {
	e.Time = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring[r.next%uint64(len(r.ring))] = e
	r.next++
	if r.log == nil || r.err != nil {
		return
	}
	_, r.err = fmt.Fprintf(r.log, "0,%s,%s,%#x,%d,%#x\n",
		e.Time.Format("15:04:05.000000"), e.Action, e.Address, e.Size, e.Queue)
}

// Flush writes what the log has buffered and returns the first failure of the
// writer.
func (r *Record) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && r.log != nil {
		r.err = r.log.Flush()
	}
	return r.err
}

// Last returns the calls in the ring, oldest first.
func (r *Record) Last() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := uint64(len(r.ring))
	first := uint64(0)
	if r.next > n {
		first = r.next - n
	}
	all := make([]Event, 0, r.next-first)
	for i := first; i < r.next; i++ {
		all = append(all, r.ring[i%n])
	}
	return all
}

// ReadLog reads a log in RMM's columns.
func ReadLog(r io.Reader) ([]Event, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = 6
	in.TrimLeadingSpace = true
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("memmgr: reading the header of a log: %w", err)
	}
	if got := strings.Join(header, ","); got != "Thread,Time,Action,Pointer,Size,Stream" {
		return nil, fmt.Errorf("memmgr: the log's columns are %q, expected Thread,Time,Action,Pointer,Size,Stream", got)
	}
	var all []Event
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("memmgr: reading a log: %w", err)
		}
		e, err := parseEvent(row)
		if err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("memmgr: line %d of the log: %w", line, err)
		}
		all = append(all, e)
	}
}

func parseEvent(row []string) (Event, error) {
	e := Event{Action: row[2]}
	switch e.Action {
	case "allocate", "allocate failure", "deallocate", "free":
	default:
		return e, fmt.Errorf("action %q is none of allocate, allocate failure, deallocate", e.Action)
	}
	if e.Action == "free" {
		e.Action = "deallocate"
	}
	address, err := strconv.ParseUint(row[3], 0, 64)
	if err != nil && row[3] != "(nil)" && row[3] != "" {
		return e, fmt.Errorf("pointer: %w", err)
	}
	size, err := strconv.ParseUint(row[4], 10, 64)
	if err != nil {
		return e, fmt.Errorf("size: %w", err)
	}
	queue, err := strconv.ParseUint(row[5], 0, 64)
	if err != nil && row[5] != "" {
		return e, fmt.Errorf("stream: %w", err)
	}
	if t, err := time.Parse("15:04:05.000000", row[1]); err == nil {
		e.Time = t
	}
	e.Address, e.Size, e.Queue = uintptr(address), uintptr(size), uintptr(queue)
	return e, nil
}

// ReplayResult is what a replay did.
type ReplayResult struct {
	Allocations, Frees int
	Failures           int    // allocations that succeeded in the log and failed now
	Unmatched          int    // frees of memory that the log never allocated
	PeakRequested      uint64 // most bytes requested at a time
	Elapsed            time.Duration
}

// Replay runs a log against a resource, in order and on this goroutine, and
// frees at the end what the log left.
func Replay(r Resource, events []Event) ReplayResult {
	var result ReplayResult
	live := map[uintptr][]Block{}
	var requested uint64
	start := time.Now()
	for _, e := range events {
		switch e.Action {
		case "allocate":
			b, err := r.Allocate(Request{Size: e.Size})
			if err != nil {
				result.Failures++
				continue
			}
			live[e.Address] = append(live[e.Address], b)
			requested += uint64(e.Size)
			result.PeakRequested = max(result.PeakRequested, requested)
			result.Allocations++
		case "deallocate":
			same := live[e.Address]
			if len(same) == 0 {
				result.Unmatched++
				continue
			}
			b := same[len(same)-1]
			live[e.Address] = same[:len(same)-1]
			requested -= uint64(b.Requested)
			r.Free(b)
			result.Frees++
		}
	}
	result.Elapsed = time.Since(start)
	for _, same := range live {
		for _, b := range same {
			r.Free(b)
		}
	}
	return result
}
