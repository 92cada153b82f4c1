package account

import (
	"sync"
	"sync/atomic"
)

// MostTags bounds the tags that have a number of their own. Numbers begin at 1.
const (
	MostTags = 1024
	otherTag = MostTags + 1 // of all further tags
)

// tags numbers the tags, so that the cell of a block can contain one. Tags are never removed.
var tags struct {
	mu     sync.Mutex
	number sync.Map // string to uint32
	n      atomic.Uint32
	names  [otherTag + 1]atomic.Pointer[string]
}

func init() {
	none, other := "", "other"
	tags.names[0].Store(&none)
	tags.names[otherTag].Store(&other)
}

// TagNumber returns the number of a tag, 0 for "". It adds a tag that has no number.
func TagNumber(tag string) uint32 {
	if tag == "" {
		return 0
	}
	return numberTag(tag)
}

func numberTag(tag string) uint32 {
	if n := findTag(tag); n != 0 {
		return n
	}
	tags.mu.Lock()
	defer tags.mu.Unlock()
	n := findTag(tag)
	if n != 0 {
		return n
	}
	n = tags.n.Load() + 1
	name := tag // a copy, so that the argument stays on the stack
	tags.names[n].Store(&name)
	tags.number.Store(tag, n)
	tags.n.Store(n) // last, for findTag
	return n
}

// findTag returns the number of a tag, 0 if it has none. If no more numbers are left, it returns that of all further
// tags for it.
func findTag(tag string) uint32 {
	full := tags.n.Load() == MostTags // before the search: then all tags with a number are in the map
	if n, ok := tags.number.Load(tag); ok {
		return n.(uint32)
	}
	if full {
		return otherTag
	}
	return 0
}

// TagName returns the tag with a number.
func TagName(n uint32) string {
	if n > otherTag || tags.names[n].Load() == nil { // read beside a change of the cell
		return ""
	}
	return *tags.names[n].Load()
}

// TagUse counts blocks in use by tag. Only blocks with a tag are counted: they never take the fast path. Therefore a
// report of the biggest holders does not have to visit the blocks. Safe for concurrent use.
type TagUse struct {
	chunks [otherTag/tagChunk + 1]atomic.Pointer[[tagChunk]tagCount] // by tag number, made at first use
}

const tagChunk = 32

type tagCount struct {
	bytes, blocks atomic.Int64
}

// Add adds to the counts of a tag, or subtracts from them.
func (u *TagUse) Add(tag uint32, bytes, blocks int64) {
	chunk := &u.chunks[tag/tagChunk]
	if chunk.Load() == nil {
		chunk.CompareAndSwap(nil, new([tagChunk]tagCount))
	}
	c := &chunk.Load()[tag%tagChunk]
	c.bytes.Add(bytes)
	c.blocks.Add(blocks)
}

// Holding is the memory in use with one tag.
type Holding struct {
	Tag           string // "" for memory without a tag
	Bytes, Blocks int64
}

// Holdings returns the memory in use by tag. bytes and blocks are the totals: the remainder that no tag counts is
// memory without a tag.
func (u *TagUse) Holdings(bytes, blocks int64) (all []Holding) {
	for i := range u.chunks {
		chunk := u.chunks[i].Load()
		if chunk == nil {
			continue
		}
		for j := range chunk {
			if n, b := chunk[j].blocks.Load(), chunk[j].bytes.Load(); n > 0 {
				all = append(all, Holding{TagName(uint32(i*tagChunk + j)), b, n})
				bytes, blocks = bytes-b, blocks-n
			}
		}
	}
	if bytes > 0 && blocks > 0 {
		all = append(all, Holding{"", bytes, blocks})
	}
	return all
}
