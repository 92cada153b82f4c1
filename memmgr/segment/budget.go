package segment

import "sync"

// spent counts the mappings and descriptors of this package. The whole process shares one limit of
// mappings (vm.max_map_count) and one of descriptors (RLIMIT_NOFILE). At the limit unrelated code
// fails, such as a new thread or a library that opens a file. The package therefore stays well
// below both.
var spent budget

type budget struct {
	mu                    sync.Mutex
	mappings, descriptors int
	most                  cost // 0: half of the limits of the system; set by tests
}

// cost is the use of one segment or one Mapping.
type cost struct{ mappings, descriptors int }

// take adds a cost, or fails with ErrLimit if a count would exceed its limit.
func (b *budget) take(op string, c cost) error {
	most := cost{systemMappings() / 2, systemDescriptors() / 2}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most != (cost{}) {
		most = b.most
	}
	switch {
	case b.mappings+c.mappings > most.mappings:
		return opError(op, ErrLimit, "%d mappings of shared memory are in use (want %d more, limit %d); "+
			"share larger segments (a Pool makes them), close unused mappings, or raise vm.max_map_count, of which half is used",
			b.mappings, c.mappings, most.mappings)
	case b.descriptors+c.descriptors > most.descriptors:
		return opError(op, ErrLimit, "%d descriptors of segments are in use (limit %d); "+
			"share larger segments (a Pool makes them), free unused segments, or raise RLIMIT_NOFILE, of which half is used",
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

// InUse returns the numbers of mappings and descriptors that this package holds in this process, for
// segments and for Mappings. It is safe for concurrent use.
func InUse() (mappings, descriptors int) {
	spent.mu.Lock()
	defer spent.mu.Unlock()
	return spent.mappings, spent.descriptors
}
