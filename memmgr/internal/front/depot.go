package front

import (
	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/block"
)

// Depot holds the cached blocks that no shard holds. Their bytes count in the budget.
//
// Lock: that of the pool.
type Depot struct {
	classes   [block.NumClasses]block.Stack
	cold      block.Stack // magazines of all classes that are to be freed
	evictNext int         // the class that Evict visits next
	bytes     int64       // in classes and cold

	Off    bool    // nothing is cached: the pool is pressed or closed
	Tick   uint32  // from which blocks that are cached now count as idle: that of the next look
	Budget *Budget // that of the front
}

// Bytes returns the bytes of the blocks in the depot.
func (d *Depot) Bytes() int64 { return d.bytes }

// Pop takes a magazine with its bytes of the budget; an empty one when there is none.
func (d *Depot) Pop(k int) block.Magazine {
	m := d.classes[k].Pop()
	d.bytes -= m.Bytes(k)
	return m
}

// PopBlock takes one block for a user, nil when there is none.
func (d *Depot) PopBlock(k int) *owner.Cell {
	c := d.classes[k].PopBlock()
	if c != nil {
		d.bytes -= block.ClassBytes[k]
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
	m.Since = d.Tick
	d.classes[k].Push(m)
	d.bytes += m.Bytes(k)
	return true
}

// Put adds a block, if the budget allows it.
func (d *Depot) Put(c *owner.Cell, k int) bool {
	if d.Off || d.Budget.Take(block.ClassBytes[k], 0) == 0 {
		return false
	}
	d.classes[k].PushBlock(c, k, d.Tick)
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

// AddCold adds all magazines of a stack, with their bytes of the budget, to those that are to be freed.
func (d *Depot) AddCold(s block.Stack) {
	for !s.Empty() {
		m := s.Pop()
		d.cold.Push(m)
		d.bytes += m.Bytes(block.Class(m.Head.Cell()))
	}
}

// Age moves the blocks that are idle since a tick or longer to the cold ones.
func (d *Depot) Age(since uint32) {
	for k := range d.classes {
		for idle := d.classes[k].TakeIdle(since); !idle.Empty(); {
			d.cold.Push(idle.Pop())
		}
	}
}
