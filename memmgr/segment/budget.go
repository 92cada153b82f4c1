package segment

import "sync"

// A process has a bounded number of mappings (vm.max_map_count) and of descriptors
// (RLIMIT_NOFILE), which all of its parts share and whose end hits whoever comes next:
// a thread that wants a stack, a library that opens a file. So this package counts
// those that it makes, and stops well before.
var spent budget

type budget struct {
	mu                    sync.Mutex
	mappings, descriptors int
}

// cost is what one segment or one received mapping takes.
type cost struct{ mappings, descriptors int }

// bounds are the largest counts at which a resource, or Map, goes on.
type bounds struct{ mappings, descriptors int }

// take counts a cost, or refuses it.
func (b *budget) take(op string, c cost, most bounds) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mappings+c.mappings > most.mappings:
		return opError(op, ErrLimit, "%d mappings of shared memory are in use and %d more are asked for, of %d; "+
			"share larger segments (a Pool makes them), close what is not needed, or raise the bound (WithMaxMappings) and vm.max_map_count",
			b.mappings, c.mappings, most.mappings)
	case b.descriptors+c.descriptors > most.descriptors:
		return opError(op, ErrLimit, "%d descriptors of segments are in use, of %d; "+
			"share larger segments (a Pool makes them), free what is not needed, or raise the bound (WithMaxDescriptors) and RLIMIT_NOFILE",
			b.descriptors, most.descriptors)
	}
	b.mappings += c.mappings
	b.descriptors += c.descriptors
	return nil
}

func (b *budget) giveBack(c cost) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mappings -= c.mappings
	b.descriptors -= c.descriptors
}

// InUse returns the mappings and descriptors that this package holds in this process,
// for segments of its own and of others.
func InUse() (mappings, descriptors int) {
	spent.mu.Lock()
	defer spent.mu.Unlock()
	return spent.mappings, spent.descriptors
}

// filled puts the defaults for what was not said: half of what the system allows
// the process now.
func (b bounds) filled() bounds {
	if b.mappings <= 0 {
		b.mappings = systemMappings() / 2
	}
	if b.descriptors <= 0 {
		b.descriptors = systemDescriptors() / 2
	}
	return b
}
