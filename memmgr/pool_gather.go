package memmgr

// Cached blocks cost room twice: they serve one size alone, and they keep the free
// memory beside them from merging with it, so that larger blocks are cut up
// instead. For small sizes that is nothing. Blocks above coarseUnits are gathered
// back into the heap when a request finds none of its size at hand and nothing in
// the heap that fits it to a gatherFit, while there are more of them than
// gatherBytes and a gatherShare of what is reserved.
const (
	gatherFit   = 16
	gatherBytes = 32 << 20
	gatherShare = 64
)

// gather dissolves the larger blocks that the caller's processor and the depot
// keep, if that is due before a block of so many units is cut. The other processors
// do so themselves. p.mu is held.
func (p *Pool) gather(units uint32) {
	if fit := p.heap.BestFit(units); fit != 0 && fit-units <= units/gatherFit {
		return
	}
	most := max(gatherBytes, int64(p.heap.count.reserved)/gatherShare)
	if p.heap.depot.bytes > most {
		for k := coarseClasses; k < numClasses; k++ {
			p.heap.flushClass(k)
		}
	}
	p.heap.dissolveStack(p.takeLarge(most))
}
