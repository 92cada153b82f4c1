package front

// Constants that decide how fast the caches are and how much they keep. Each one states the measurement to repeat
// when it changes: a work of membench (the argument of -work), or a benchmark or test of package memmgr.
const (
	// publishStep is how many bytes of changes a shard may have unpublished. The peak of
	// allocated bytes is exact to this much for each processor. Measure: larson.
	publishStep = 4 << 20
	// depotTries is how many classes of the depot a free looks at for a magazine to evict.
	// Measure: random, million.
	depotTries = 64
	// AgesPerDecay is how often within the time of decay the caches are looked at for unused blocks.
	// [Front.Age] stops the shards. Measure: TestIdleMemoryIsBackInTime, larson.
	AgesPerDecay = 4
	// The default bound leaves one in sharedPart of the bytes of segments to requests of any class,
	// because cached blocks do not merge. Measure: fragmentation, batch.
	sharedPart = 16
	// The default bound is at least leastCache bytes. Measure: random, larson.
	leastCache = 32 << 20
)
