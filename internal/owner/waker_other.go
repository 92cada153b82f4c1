//go:build !linux

package owner

import "sync"

var (
	wakersMu sync.Mutex
	wakers   = map[*waker]chan struct{}{}
)

// openWaker returns the function that sleeps until signal. It uses a channel, because without C code no
// eventfd is needed.
func openWaker(w *waker) (sleep func()) {
	ch := make(chan struct{}, 1)
	wakersMu.Lock()
	defer wakersMu.Unlock()
	wakers[w] = ch
	return func() { <-ch }
}

func (w *waker) signal() {
	wakersMu.Lock()
	ch := wakers[w]
	wakersMu.Unlock()
	select {
	case ch <- struct{}{}:
	default:
	}
}
