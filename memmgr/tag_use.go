package memmgr

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// tagUse counts what users hold by tag, as it goes: memory with a tag takes the
// slow way in and out of a pool anyway. So a report of the holders looks at the
// tags and never at the blocks.
type tagUse struct {
	mu    sync.Mutex
	table atomic.Pointer[[]*tagCount] // by tag number; entry 0 is not used
}

type tagCount struct{ bytes, blocks atomic.Int64 }

// add counts blocks that came under a tag, or went.
func (u *tagUse) add(tag uint32, bytes, blocks int64) {
	c := u.of(tag)
	c.bytes.Add(bytes)
	c.blocks.Add(blocks)
}

// has reports whether blocks were ever counted under a tag.
func (u *tagUse) has(tag uint32) bool {
	t := u.table.Load()
	return t != nil && int(tag) < len(*t) && (*t)[tag] != nil
}

// adopt makes u know the tags of other, whose blocks are all free.
func (u *tagUse) adopt(other *tagUse) {
	if t := other.table.Load(); t != nil {
		for tag, c := range *t {
			if c != nil {
				u.of(uint32(tag))
			}
		}
	}
}

// of returns the count of a tag, making it on first use.
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

// mostHolders is how many holders an account of a failure names.
const mostHolders = 8

// holders lists them by tag, of so many bytes and blocks in all: what no tag counts
// for is memory without one.
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

// biggest returns the biggest holders, those first.
func biggest(all []Holder) []Holder {
	slices.SortFunc(all, func(a, b Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return all[:min(mostHolders, len(all))]
}
