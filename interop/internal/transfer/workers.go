package transfer

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/usmbridge/usmbridge/internal/operr"
)

// MaxWorkers is the maximum number of goroutines of a transfer.
const MaxWorkers = 16

// Workers returns the number of goroutines for a requested number. 0 requests one for each processor,
// at most 8.
func Workers(wish int) int {
	if wish <= 0 {
		return min(runtime.GOMAXPROCS(0), 8)
	}
	return min(wish, MaxWorkers)
}

var errGoexit = errors.New("the reader or writer ended its goroutine (runtime.Goexit)")

// team is the state that the goroutines of together share.
type team struct {
	mu       sync.Mutex
	err      error
	panicked any
	cancel   context.CancelFunc
}

// together runs work on n goroutines, one of which is the caller's, and returns when all have ended. The
// first error cancels the context of the other goroutines and is returned. A panic of any goroutine is
// raised again in the caller.
func together(ctx context.Context, n int, work func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	t := team{cancel: cancel}
	var rest sync.WaitGroup
	for range n - 1 {
		rest.Add(1)
		go func() {
			defer rest.Done()
			t.do(inner, work)
		}()
	}
	func() {
		defer rest.Wait() // also if work panics or calls runtime.Goexit
		t.do(inner, work)
	}()
	if t.panicked != nil {
		panic(t.panicked)
	}
	if err := operr.Ended(ctx); err != nil && t.err != nil {
		return err
	}
	return t.err
}

func (t *team) do(ctx context.Context, work func(context.Context) error) {
	err, v := errGoexit, any(nil)
	defer func() {
		if err == nil {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.err == nil {
			t.err = err
		}
		if t.panicked == nil {
			t.panicked = v
		}
		t.cancel()
	}()
	func() {
		defer func() { v = recover() }()
		err = work(ctx)
	}()
}
