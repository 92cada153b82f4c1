package memmgr

import (
	"time"

	"github.com/usmbridge/usmbridge/memmgr/internal/pending"
)

// This file holds the constants that decide how fast the memory manager is and how much it
// keeps. Each one states its unit, its reason, and the measurement to repeat when it changes: a work of
// membench (the argument of -work), or a benchmark or test of this package. Constants that
// describe the layout of data stand beside the data, and those of parts in their packages below internal.

// Defaults of the options.
const (
	// defaultSegment is the smallest segment in bytes. Smaller segments mean more calls of the
	// upstream, larger ones more memory for a small process. Measure: traces, fragmentation.
	defaultSegment = 2 << 20
	// The next segment has one in growthPart of the reserved bytes. A sixteenth
	// wastes at most 1.09 times the peak, doubling 1.96 times. Measure: fragmentation.
	growthPart = 16
	// A segment has at most mostGrowth bytes more than its request, so that it becomes empty again.
	// Segments above it serve no small requests. Measure: traces.
	mostGrowth = 32 << 20
	// defaultDecay is how long memory stays idle before it goes back. It is longer than the
	// pause between two requests to a service. Measure: service, rounds.
	defaultDecay = 10 * time.Second
)

// Front: the caches of the processors.
const (
	// A miss cuts batchBytes of blocks of its class, at most batchBlocks, and at most one for each
	// miss of the class before. Measure: batch, random, rmm.
	batchBytes  = 128 << 10
	batchBlocks = 64
)

// Reclaim.
const (
	// missLooks is how many pending blocks a miss asks for before it takes another block.
	// Measure: TestCompletingQueriesEachBlockAFewTimes.
	missLooks = 16
	// refusalLooks is how many pending blocks that are not done a refusal looks at. The keeper
	// looks at the rest. Measure: refusal.
	refusalLooks = 64
	// After all cached blocks were evicted in vain, the next eviction waits for so long: for a
	// request of the pool, and for another pool. An eviction stops every processor.
	// Measure: refusal, service.
	futileTime = time.Millisecond
	barrenTime = 10 * time.Millisecond
	// mostStacked is how many pools above each other one refusal takes idle memory of.
	mostStacked = 4
	// A request for a block above block.CoarseUnits that fits no free block up to one in gatherFit
	// larger evicts cached blocks of such sizes, if these are more than gatherBytes and one in
	// gatherShare of the reserved bytes. Measure: service, fragmentation.
	gatherFit   = 16
	gatherBytes = 32 << 20
	gatherShare = 64
	// At most one part in futileShare of the time goes to evictions in vain, unless they take so long that
	// the pause would exceed mostFutile. One that follows so soon finds few blocks, unless memory was
	// freed. A request that cannot wait is refused during a pause, although cached blocks could
	// serve it. Measure: refusal.
	futileShare = 20
	mostFutile  = 10 * time.Millisecond
)

// Keeper: the goroutine of the package. tickTime is the time between two ticks. All ages are multiples of it.
const tickTime = pending.TickTime

// Waitlist.
const (
	// lookAhead is how many waiters of a line are tried, the first included, besides the smallest.
	// Measure: service.
	lookAhead = 16
	// fragmentedTime is how long a waiter is first of its line, with enough memory free in
	// pieces, before it gets a reservation. Measure: service (longest time blocked).
	fragmentedTime = 5 * time.Millisecond
	// The poller polls after shortWatch and then less often, down to longWatch. Measure: service.
	shortWatch = 100 * time.Microsecond
	longWatch  = 5 * time.Millisecond
	// A waiter asks an upstream that seems to have room again after retryTime. Measure: service.
	retryTime = time.Millisecond
	// longRetry is the longest time between two questions of waiters, which doubles from retryTime
	// while the upstream refuses. Measure: service.
	longRetry = 64 * retryTime
	// askAgain is how often a waiter asks an upstream whose room is unknown, and other pools if they do
	// not signal before that they have memory. Measure: service.
	askAgain = 10 * time.Millisecond
	// A reservation lasts while memory is freed within reserveTime, within twice that at each
	// further attempt up to longReserve, and mostReserve in all. Measure: service, tenant.
	reserveTime = 10 * time.Millisecond
	longReserve = 16 * reserveTime
	mostReserve = 2 * time.Second
	// After a reservation in vain all waiters are served for pauseShare times as long.
	// Measure: service (throughput).
	pauseShare = 3
	// A tenant reserves room below its hard limit for reserveTime, and then serves all of its
	// waiters for tenantPause. Measure: tenant.
	tenantPause = pauseShare * reserveTime
	// remoteTime is how long a reservation in another pool lasts that is not renewed.
	// Measure: service.
	remoteTime = 3 * askAgain
	// shareTime is how long a waiter that wants more than its pool has is first of its line
	// before other pools reserve for it, if it is unknown how much they served meanwhile. Measure: service.
	shareTime = 2 * askAgain
)

// Tenants.
const (
	// A processor gets credit of maxCredit bytes at a time, or of one in creditShare of the
	// hard limit over all processors. More credit means fewer locked charges and a limit that
	// is reached earlier. Measure: tenant.
	maxCredit   = 1 << 20
	creditShare = 16
	// Credit is given again when one in looseShare of the limit is free. Measure: tenant.
	looseShare = 8
)

// Statistics and reports.
const (
	// mostHolders is the maximum length of the list in an error: enough to find the cause, and
	// short enough to read.
	mostHolders = 8
	// debugStackDepth is how many frames the word "stacks" of DebugEnv records.
	debugStackDepth = 16
)
