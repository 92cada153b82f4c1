package transfer

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// MaxWorkers bounds the goroutines of a transfer.
const MaxWorkers = 16

// Workers is the number of goroutines for a wish: 0 is one for each processor, 8 at most.
func Workers(wish int) int {
	if wish <= 0 {
		return min(runtime.GOMAXPROCS(0), 8)
	}
	return min(wish, MaxWorkers)
}

var errGoexit = errors.New("the reader or writer ended its goroutine (runtime.Goexit)")

// team runs work on n goroutines, the caller's among them, and returns when all have ended:
// the first failure, which ends the context of the others, or nil. A panic in one goes on in
// the caller.
type team struct {
	mu       sync.Mutex
	err      error
	panicked any
	cancel   context.CancelFunc
}

func together(ctx context.Context, n int, work func(context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	t := team{cancel: cancel}
	var others sync.WaitGroup
	for range n - 1 {
		others.Add(1)
		go func() {
			defer others.Done()
			t.do(inner, work)
		}()
	}
	func() {
		defer others.Wait() // whatever becomes of this goroutine
		t.do(inner, work)
	}()
	if t.panicked != nil {
		panic(t.panicked)
	}
	if err := ctx.Err(); err != nil && t.err != nil {
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
