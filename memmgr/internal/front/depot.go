package front

import (
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
)

// Depot holds the cached blocks that no shard holds. Their bytes count in the budget.
//
// Lock: that of the pool.
type Depot struct {
	classes   [block.NumClasses]depotClass
	cold      block.Stack // magazines of all classes that are to be freed
	evictNext int         // the class that Evict visits next
	bytes     int64       // in classes and cold

	Off    bool    // nothing is cached: the pool is pressed or closed
	Budget *Budget // that of the front
}

// depotClass is the part of the depot for one class.
type depotClass struct {
	block.Stack
	blocks uint32
	low    uint32 // the fewest blocks since the last call of Age
}

// Bytes returns the bytes of the blocks in the depot.
func (d *Depot) Bytes() int64 { return d.bytes }

// take subtracts blocks of a class that leave the depot.
func (d *Depot) take(k int, n uint32) {
	r := &d.classes[k]
	r.blocks -= n
	r.low = min(r.low, r.blocks)
	d.bytes -= block.ClassBytes[k] * int64(n)
}

// Pop takes a magazine with its bytes of the budget; an empty one when there is none.
func (d *Depot) Pop(k int) block.Magazine {
	m := d.classes[k].Pop()
	d.take(k, m.N)
	return m
}

// PopBlock takes one block for a user, nil when there is none.
func (d *Depot) PopBlock(k int) *owner.Cell {
	c := d.classes[k].PopBlock()
	if c != nil {
		d.take(k, 1)
		d.Budget.Give(block.ClassBytes[k])
	}
	return c
}

// Push adds a magazine whose bytes of the budget are taken. While nothing is
// cached it returns these bytes and reports false.
func (d *Depot) Push(m block.Magazine, k int) bool {
	if d.Off {
		d.Budget.Give(m.Bytes(k))
		return false
	}
	d.classes[k].Push(m)
	d.classes[k].blocks += m.N
	d.bytes += m.Bytes(k)
	return true
}

// Put adds a block, if the budget allows it.
func (d *Depot) Put(c *owner.Cell, k int) bool {
	if d.Off || d.Budget.Take(block.ClassBytes[k], 0) == 0 {
		return false
	}
	d.classes[k].PushBlock(c, k)
	d.classes[k].blocks++
	d.bytes += block.ClassBytes[k]
	return true
}

// Evict takes a magazine out for the heap, and gives its bytes of the budget back: a cold one, or one of the
// classes after the last one that it visited. It visits a few, and returns an empty magazine if they have none.
func (d *Depot) Evict() (m block.Magazine) {
	if m = d.PopCold(); m.N != 0 || d.bytes == 0 {
		return m
	}
	for range depotTries {
		k := d.evictNext
		d.evictNext = (k + 1) % block.NumClasses
		if m = d.Pop(k); m.N != 0 {
			d.Budget.Give(m.Bytes(k))
			break
		}
	}
	return m
}

// PopCold takes a magazine that is to be freed, and gives its bytes of the budget back. It returns an empty
// magazine when there is none.
func (d *Depot) PopCold() block.Magazine {
	m := d.cold.Pop()
	if m.N != 0 {
		bytes := m.Bytes(block.Class(m.Head.Cell()))
		d.bytes -= bytes
		d.Budget.Give(bytes)
	}
	return m
}

// HasCold reports whether there are magazines that are to be freed.
func (d *Depot) HasCold() bool { return !d.cold.Empty() }

// addCold adds a magazine, with its bytes of the budget, to those that are to be freed.
func (d *Depot) addCold(m block.Magazine, k int) {
	d.cold.Push(m)
	d.bytes += m.Bytes(k)
}

// AddCold adds all magazines of a stack, with their bytes of the budget, to those that are to be freed.
func (d *Depot) AddCold(s block.Stack) {
	for !s.Empty() {
		m := s.Pop()
		d.addCold(m, block.Class(m.Head.Cell()))
	}
}

// Age moves the blocks that were not needed since the last call to the cold ones. In each class, these are
// as many as were always there since then.
func (d *Depot) Age() {
	for k := range d.classes {
		r := &d.classes[k]
		for r.low != 0 {
			n := r.TopBlocks()
			if n > r.low {
				break
			}
			low := r.low - n
			d.addCold(d.Pop(k), k)
			r.low = low
		}
		r.low = r.blocks
	}
}
