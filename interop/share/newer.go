package share

import "errors"

// newerWait is a call of WaitNewer that waits for an array with a number above after.
type newerWait struct {
	peer  *Peer
	call  uint64
	name  string
	after uint64
}

// wait answers a call of WaitNewer now if a newer array is published, else when one is.
func (n *node) wait(w newerWait) error {
	n.mu.Lock()
	p := n.published[w.name]
	_, connected := n.peers[w.peer]
	var refusal error
	switch {
	case !connected: // the connection has ended
	case n.published == nil:
		refusal = opError("WaitNewer", ErrName, "this process publishes nothing")
	case n.closed:
		refusal = opError("WaitNewer", ErrClosed, "the server was closed")
	case p != nil && p.sequence > w.after:
		n.mu.Unlock()
		return n.answer(w)
	case n.waits[w.peer] >= maxCalls:
		refusal = opError("WaitNewer", ErrLimit, "%d calls wait, the maximum for one process", maxCalls)
	default:
		if n.newer == nil {
			n.newer, n.waits = map[string][]newerWait{}, map[*Peer]int{}
		}
		n.newer[w.name] = append(n.newer[w.name], w)
		n.waits[w.peer]++
	}
	n.mu.Unlock()
	if refusal != nil {
		return w.peer.refuse(w.call, refusal)
	}
	return nil
}

// answer opens the published array for a call of WaitNewer. If it was withdrawn meanwhile, the call
// waits again. An error ends the connection.
func (n *node) answer(w newerWait) error {
	l, pending, err := n.attach(w.peer, w.name, true)
	if errors.Is(err, ErrName) {
		return n.wait(w)
	}
	return w.peer.lendAfter(w.call, l, pending, err)
}

// cancelWait removes a waiting call and reports whether there was one.
func (n *node) cancelWait(p *Peer, call uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.dropWaits(func(w newerWait) bool { return w.peer == p && w.call == call })) > 0
}

// dropWaits removes the waits for which drop returns true, and returns them. n.mu is held.
func (n *node) dropWaits(drop func(newerWait) bool) (dropped []newerWait) {
	for name, waits := range n.newer {
		kept := waits[:0]
		for _, w := range waits {
			if !drop(w) {
				kept = append(kept, w)
				continue
			}
			dropped = append(dropped, w)
			if n.waits[w.peer]--; n.waits[w.peer] == 0 {
				delete(n.waits, w.peer)
			}
		}
		if len(kept) == 0 {
			delete(n.newer, name)
		} else {
			n.newer[name] = kept
		}
	}
	return dropped
}
