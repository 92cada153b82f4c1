package pending

import "time"

// The constants that decide how fast the package is. Each one states its unit, its reason, and the work of
// membench, or the test of package memmgr, to repeat when it changes.
const (
	// TickTime is the time between two ticks. Measure: off, larson.
	TickTime = 250 * time.Millisecond
	// firstBatch is how many blocks of a queue are asked for first. While all of them are done
	// the number doubles up to mostBatch, which is also the number under one hold of the lock.
	// Measure: TestCompletingQueriesEachBlockAFewTimes.
	firstBatch = 4
	mostBatch  = 64
	// tickLooks is how many blocks that are not done a tick looks at. Measure: TestCompletingQueriesEachBlockAFewTimes.
	tickLooks = 1024
	// Work that has not ended after stallTicks ticks has stalled: the runtime may have lost its
	// event. Longer than any kernel that is expected. Measure: nothing; it is a deadline.
	stallTicks = 40
	stallTime  = stallTicks * TickTime
	// A caller that waits for everything waits for each stalled block for probeTime, because
	// only the wait reports the end of work that failed. It gives up after maxProbes that do
	// not end. Measure: the time of TestLostEventCostsItsOwnBlock.
	probeTime = 100 * time.Millisecond
	maxProbes = 16
	// Exported memory waits for one barrier for all blocks of a queue: for returnedBlocks or
	// returnedBytes, or until a request needs memory or the next tick. Measure: sycl.
	returnedBlocks = 32
	returnedBytes  = 16 << 20
	// sameQueueTries bounds the search for a pending block without a class. Measure: TestCompletingQueriesEachBlockAFewTimes.
	sameQueueTries = 32
	// Foreign memory that only Settle releases stays with its owner's consumer. An import settles it if there are more
	// pieces or bytes. Python has the same bounds (USMB_MOST_AWAITING). Measure: nothing.
	mostAwaiting = 64
	mostAwaited  = 64 << 20
)

const (
	// cudaPatience is how long a request that can get other memory waits for work of CUDA.
	cudaPatience = time.Millisecond
	// CUDASlack is how many bytes of memory of CUDA wait before such a request waits for their work at all, if the
	// size of the device is unknown: enough to leave captures of graphs alone, and far below the memory of a GPU.
	CUDASlack = 256 << 20
)
