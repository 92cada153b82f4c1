package memmgr

import "sync"

// poolMutex is the lock of a pool. Segments that are dropped while it is held go
// back to the upstream when it was let go, on the same goroutine, because the
// upstream may take its time and others want to allocate.
type poolMutex struct {
	rankedMutex
	upstream  Resource
	dropped   []Block   // to go back at the next Unlock
	returning int       // goroutines that give some back
	returns   uint64    // how often one has done so
	returned  sync.Cond // that one has
}

func (m *poolMutex) init(upstream Resource) {
	m.upstream = upstream
	m.returned.L = &m.rankedMutex
}

// drop has a segment go back. The lock is held.
func (m *poolMutex) drop(b Block) { m.dropped = append(m.dropped, b) }

// Unlock lets go, and gives back what was dropped.
func (m *poolMutex) Unlock() {
	if len(m.dropped) == 0 {
		m.rankedMutex.Unlock()
		return
	}
	dropped := m.dropped
	m.dropped = nil
	m.returning++
	m.rankedMutex.Unlock()
	defer func() {
		m.rankedMutex.Lock()
		m.returning--
		m.returns++
		m.returned.Broadcast()
		m.rankedMutex.Unlock()
	}()
	freeEach(m.upstream, dropped)
}

// freeEach gives blocks back. Where the upstream panics over one, the others go back
// all the same, before the panic goes on.
func freeEach(upstream Resource, blocks []Block) {
	done := 0
	defer func() {
		if done < len(blocks) {
			freeEach(upstream, blocks[done+1:])
		}
	}()
	for ; done < len(blocks); done++ {
		upstream.Free(blocks[done])
	}
}

// awaitReturned waits for as many goroutines to end giving back as are at it now,
// and reports whether there were any. It waits for calls of Free alone, never for
// room or a device. The lock is held, and let go meanwhile.
func (m *poolMutex) awaitReturned() (any bool) {
	if len(m.dropped) > 0 { // or others would give it back, after this ends
		m.Unlock()
		m.Lock()
	}
	end := m.returns + uint64(m.returning)
	for ; m.returning > 0 && m.returns < end; any = true {
		m.returned.Wait()
	}
	return any
}
