package memmgr

import "errors"

// inUse estimates the bytes and blocks that users hold, without stopping the shards. It
// is exact while no goroutine allocates or frees.
func (p *Pool) inUse() (bytes, blocks int64) {
	bytes, blocks = p.front.unpublished()
	return bytes + p.published.bytes.now.Load(), blocks + p.published.blocks.now.Load()
}

// refuse is outOfMemory for callers without the lock.
func (p *Pool) refuse(w *want, cause error) *OutOfMemoryError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.outOfMemory(w, cause)
}

// failed counts a request that fails for good, and makes its error.
func (p *Pool) failed(w *want, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail(w, cause)
}

// fail is failed for callers with the lock.
func (p *Pool) fail(w *want, cause error) *OutOfMemoryError {
	p.counters.ooms++
	if p.trace != nil {
		p.trace.addOOM(uint64(w.units) * unit)
	}
	return p.outOfMemory(w, cause)
}

// outOfMemory gives the whole account of a failure. p.mu is held.
func (p *Pool) outOfMemory(w *want, cause error) *OutOfMemoryError {
	p.settleLarge()
	bytes, blocks := p.inUse()
	e := &OutOfMemoryError{
		Request: w.r, Place: p.Place(), Rounded: uint64(w.units) * unit,
		LargestFree: uint64(p.heap.Largest()),
		Allocated:   uint64(max(bytes, 0)),
		Reserved:    p.heap.count.reserved,
		Pending:     p.pending.bytes + p.pending.returnedBytes,
		Holders:     p.holders(bytes, blocks),
		Err:         reasonOf(cause),
	}
	if w.tenant != nil {
		e.Tenant = w.tenant.name
	}
	if tight, _ := p.limitRoom(); tight != nil {
		e.Limit = tight.Bytes()
	} else if l, ok := As[*Limit](p.upstream); ok && l.bounds() {
		e.Limit = l.Bytes()
	}
	if p.deviceSized != nil {
		e.DeviceTotal = p.deviceSized.DeviceTotal()
	}
	return e
}

// holders lists the biggest holders by tenant and tag, of so much in all.
func (p *Pool) holders(bytes, blocks int64) (all []Holder) {
	p.eachTenant(func(t *Tenant) {
		b, n := t.inUse()
		all = append(all, t.tagged.holders(t.name, b, n)...)
		bytes, blocks = bytes-b, blocks-n
	})
	return biggest(append(all, p.tagged.holders("", bytes, blocks)...))
}

// reasonOf passes over an account of a limit or of this pool, so that one account
// tells it all.
func reasonOf(cause error) error {
	var oom *OutOfMemoryError
	if errors.As(cause, &oom) && (errors.Is(oom.Err, errLimit) || oom.Reserved != 0) {
		return oom.Err
	}
	return cause
}
