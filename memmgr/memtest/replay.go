package memtest

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Event is one call in a log of [memmgr.Record].
type Event struct {
	Time    time.Time
	Action  string // "allocate", "allocate failure" or "deallocate"
	Address uintptr
	Size    uintptr // as requested
	Queue   uintptr
}

// ReadLog reads a log of [memmgr.Record], which has the columns of RMM's logs.
func ReadLog(r io.Reader) ([]Event, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = 6
	in.TrimLeadingSpace = true
	header, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("memtest: read the header of the log: %w", err)
	}
	if got := strings.Join(header, ","); got != "Thread,Time,Action,Pointer,Size,Stream" {
		return nil, fmt.Errorf("memtest: unknown columns of the log (got %q, want Thread,Time,Action,Pointer,Size,Stream)", got)
	}
	var all []Event
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("memtest: read the log: %w", err)
		}
		e, err := parseEvent(row)
		if err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("memtest: line %d of the log: %w", line, err)
		}
		all = append(all, e)
	}
}

func parseEvent(row []string) (Event, error) {
	e := Event{Action: row[2]}
	switch e.Action {
	case "allocate", "allocate failure", "deallocate", "free":
	default:
		return e, fmt.Errorf("unknown action %q (want allocate, allocate failure or deallocate)", e.Action)
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

// ReplayResult has the counts of a replay.
type ReplayResult struct {
	Allocations, Frees int
	Failures           int    // allocations that succeeded in the log and failed in the replay
	Unmatched          int    // frees of memory that was not allocated in the log
	PeakRequested      uint64 // largest number of requested bytes in use
	Elapsed            time.Duration
}

// Replay runs the events on a resource, in their order and on this goroutine. Then it frees the blocks
// that the log did not free.
func Replay(r memmgr.Resource, events []Event) ReplayResult {
	var result ReplayResult
	live := map[uintptr][]memmgr.Block{}
	var requested uint64
	start := time.Now()
	for _, e := range events {
		switch e.Action {
		case "allocate":
			b, err := r.Allocate(memmgr.Request{Size: e.Size})
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
