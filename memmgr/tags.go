package memmgr

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// tags numbers the tags, so that the cell of a block can contain one. Tags are never removed:
// programs use few.
var tags struct {
	mu     sync.Mutex
	number sync.Map // string to uint32
	names  atomic.Pointer[[]string]
}

// tagNumber returns the number of a tag, 0 for "". It adds a tag that has no number.
func tagNumber(tag string) uint32 {
	if n := findTag(tag); n != 0 || tag == "" {
		return n
	}
	tags.mu.Lock()
	defer tags.mu.Unlock()
	if n := findTag(tag); n != 0 {
		return n
	}
	names := []string{""}
	if old := tags.names.Load(); old != nil {
		names = *old
	}
	n := uint32(len(names))
	names = append(names[:len(names):len(names)], tag)
	tags.names.Store(&names)
	tags.number.Store(tag, n)
	return n
}

// findTag returns the number of a tag, 0 if no request has used it.
func findTag(tag string) uint32 {
	n, _ := tags.number.Load(tag)
	number, _ := n.(uint32)
	return number
}

// tagName returns the tag with a number.
func tagName(n uint32) string {
	names := tags.names.Load()
	if names == nil || int(n) >= len(*names) {
		return ""
	}
	return (*names)[n]
}

// tagUse counts blocks in use by tag. Only blocks with a tag are counted: they never take the
// fast path. Therefore a report of the biggest holders does not have to visit the blocks.
type tagUse struct {
	mu    sync.Mutex
	table atomic.Pointer[[]*tagCount] // by tag number; entry 0 is unused
}

type tagCount struct{ bytes, blocks atomic.Int64 }

// add adds to the counts of a tag, or subtracts from them.
func (u *tagUse) add(tag uint32, bytes, blocks int64) {
	c := u.of(tag)
	c.bytes.Add(bytes)
	c.blocks.Add(blocks)
}

// has reports whether blocks with a tag were ever counted.
func (u *tagUse) has(tag uint32) bool {
	t := u.table.Load()
	return t != nil && int(tag) < len(*t) && (*t)[tag] != nil
}

// adopt adds the tags of other, whose blocks are all free, so that has reports them.
func (u *tagUse) adopt(other *tagUse) {
	if t := other.table.Load(); t != nil {
		for tag, c := range *t {
			if c != nil {
				u.of(uint32(tag))
			}
		}
	}
}

// of returns the counts of a tag, which it adds on first use.
func (u *tagUse) of(tag uint32) *tagCount {
	if u.has(tag) {
		return (*u.table.Load())[tag]
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var table []*tagCount
	if t := u.table.Load(); t != nil {
		table = slices.Clone(*t)
	}
	if int(tag) >= len(table) {
		table = append(table, make([]*tagCount, int(tag)+1-len(table))...)
	}
	if table[tag] == nil {
		table[tag] = &tagCount{}
		u.table.Store(&table)
	}
	return table[tag]
}

// holders lists the holders by tag. bytes and blocks are the totals: the remainder that no tag
// counts is listed as memory without a tag.
func (u *tagUse) holders(tenant string, bytes, blocks int64) (all []Holder) {
	if t := u.table.Load(); t != nil {
		for tag, c := range *t {
			if c == nil {
				continue
			}
			if b, n := c.bytes.Load(), c.blocks.Load(); n > 0 {
				all = append(all, Holder{Tenant: tenant, Tag: tagName(uint32(tag)), Bytes: uint64(b), Count: uint64(n)})
				bytes, blocks = bytes-b, blocks-n
			}
		}
	}
	if bytes > 0 && blocks > 0 {
		all = append(all, Holder{Tenant: tenant, Bytes: uint64(bytes), Count: uint64(blocks)})
	}
	return all
}

// biggest returns up to mostHolders holders in descending order of size.
func biggest(all []Holder) []Holder {
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all[:min(mostHolders, len(all))]
}
