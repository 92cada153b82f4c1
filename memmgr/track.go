package memmgr

import (
	"fmt"
	"io"
	"sort"
	"sync"
	"time"
)

// Track remembers every block that is out, with the place where it was asked
// for and since when, and panics on a free of what is not out ([*UseError]): for finding
// leaks and wrong frees behind one resource.
type Track struct {
	upstream
	depth int

	mu   sync.Mutex
	out  map[uintptr]trackRecord
	gone map[uintptr]uint32 // stack of the last free, by address
}

type trackRecord struct {
	block Block
	tag   string
	stack uint32
	since time.Time
}

// NewTrack tracks an upstream, recording stacks of so many frames (at most 64;
// 0 for none).
func NewTrack(from Resource, depth int) *Track {
	return &Track{
		upstream: over(from), depth: max(0, min(depth, 64)),
		out: map[uintptr]trackRecord{}, gone: map[uintptr]uint32{},
	}
}

func (t *Track) stack() uint32 {
	if t.depth == 0 {
		return 0
	}
	return captureStack(t.depth, 3)
}

// Allocate implements [Resource].
func (t *Track) Allocate(r Request) (Block, error) {
	b, err := t.from.Allocate(r)
	if err != nil {
		return b, err
	}
	rec := trackRecord{block: b, tag: r.Tag, stack: t.stack(), since: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out[b.Address] = rec
	delete(t.gone, b.Address)
	return b, nil
}

// Free implements [Resource].
func (t *Track) Free(b Block) {
	stack := t.stack()
	t.mu.Lock()
	rec, ok := t.out[b.Address]
	if !ok {
		before, freed := t.gone[b.Address]
		t.mu.Unlock()
		panic(wrongFree(b, before, freed))
	}
	delete(t.out, b.Address)
	t.gone[b.Address] = stack
	t.mu.Unlock()
	if rec.block.Size != b.Size {
		panic(misuse("Track.Free", "%d bytes at %#x, which has %d", b.Size, b.Address, rec.block.Size))
	}
	t.from.Free(b)
}

func wrongFree(b Block, stack uint32, freed bool) *UseError {
	if !freed {
		return misuse("Track.Free", "%#x was never allocated here", b.Address)
	}
	return misuse("Track.Free", "second free of %#x; the first was at\n%s", b.Address, stackText(stack))
}

// Outstanding is a block that is out.
type Outstanding struct {
	Block Block
	Tag   string
	Since time.Time
	Stack string
}

// Outstanding lists the blocks that are out, longest first.
func (t *Track) Outstanding() []Outstanding {
	t.mu.Lock()
	all := make([]Outstanding, 0, len(t.out))
	for _, r := range t.out {
		all = append(all, Outstanding{Block: r.block, Tag: r.tag, Since: r.since, Stack: stackText(r.stack)})
	}
	t.mu.Unlock()
	sort.Slice(all, func(i, j int) bool { return all[i].Since.Before(all[j].Since) })
	return all
}

// WriteReport writes the blocks that are out.
func (t *Track) WriteReport(w io.Writer) error {
	for _, o := range t.Outstanding() {
		_, err := fmt.Fprintf(w, "%s at %#x, tag %q, for %v, allocated at\n%s",
			bytesText(uint64(o.Block.Size)), o.Block.Address, o.Tag, time.Since(o.Since).Round(time.Millisecond), o.Stack)
		if err != nil {
			return err
		}
	}
	return nil
}
