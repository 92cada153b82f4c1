package memmgr

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"time"
)

// Record logs every call as CSV in the columns of RMM's memory event log (Thread,
// Time, Action, Pointer, Size, Stream), so that tools for it read it, and package
// memtest runs it again. Go has no thread numbers worth writing: Thread is 0.
type Record struct {
	upstream

	mu  sync.Mutex
	log *bufio.Writer
	err error
}

// NewRecord logs what is asked of an upstream.
func NewRecord(from Resource, log io.Writer) *Record {
	r := &Record{upstream: over(from), log: bufio.NewWriter(log)}
	_, r.err = r.log.WriteString("Thread,Time,Action,Pointer,Size,Stream\n")
	return r
}

// Allocate implements [Resource].
func (r *Record) Allocate(request Request) (Block, error) {
	b, err := r.from.Allocate(request)
	action, queue := "allocate", uintptr(0)
	if request.Queue != nil {
		queue = uintptr(request.Queue.Ref())
	}
	if err != nil {
		action = "allocate failure"
	}
	r.note(action, b.Address, request.Size, queue)
	return b, err
}

// Free implements [Resource].
func (r *Record) Free(b Block) {
	// Noted before the memory can be given to somebody else, so that the log
	// is in an order that can have happened.
	r.note("deallocate", b.Address, b.Requested, b.Queue)
	r.from.Free(b)
}

func (r *Record) note(action string, address, size, queue uintptr) {
	now := time.Now().Format("15:04:05.000000")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.log, "0,%s,%s,%#x,%d,%#x\n", now, action, address, size, queue)
	}
}

// Flush writes what the log has buffered and returns the first failure of the
// writer.
func (r *Record) Flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = r.log.Flush()
	}
	return r.err
}
