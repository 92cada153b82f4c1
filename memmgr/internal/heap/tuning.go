package heap

// Constants that decide how long the lock of the pool is held. Each one states the measurement to repeat when it
// changes: a work of membench (the argument of -work), or a test of package memmgr.
const (
	// segmentPortion segments or coldPortion blocks are freed under one hold of the lock, so that requests get it in
	// between. Measure: service (longest time blocked).
	segmentPortion = 32
	coldPortion    = 512
	// A portion of free blocks whose pages go back ends after dirtyBytes, for which the blocks are out of the heap, or
	// after dirtyLooks blocks, for which the lock is held. Measure: TestPurgingBesideUse, service.
	dirtyBytes = 8 << 20
	dirtyLooks = 256
)
