package memmgr

import (
	"bufio"
	"encoding/json"
	"io"
	"time"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/memmgr/internal/tlsf"
)

// BlockState is what a block is used for, in the words of PyTorch's memory
// viewer.
type BlockState string

// The states of blocks.
const (
	BlockActive  BlockState = "active_allocated"
	BlockPending BlockState = "active_pending_free" // freed, the device still works on it
	BlockFree    BlockState = "inactive"
)

// SnapshotBlock is a block of a segment.
type SnapshotBlock struct {
	Address   uintptr
	Size      uint64
	Requested uint64 // of a block in use
	State     BlockState
	Cached    bool // free, and kept for its size class
	Tag       string
	stack     uint32
}

// SnapshotSegment is upstream memory and its blocks, by address.
type SnapshotSegment struct {
	Address   uintptr
	Size      uint64
	Dedicated bool // one block that fills it
	Kept      bool // gives nothing out until it is empty, for one who waits: see SnapshotWait
	Blocks    []SnapshotBlock
}

// sum adds up the blocks of a state.
func (s *SnapshotSegment) sum(f func(*SnapshotBlock) uint64) (n uint64) {
	for i := range s.Blocks {
		n += f(&s.Blocks[i])
	}
	return n
}

// SnapshotWait is a request that waits for memory. KeptSince is since when the pool
// keeps room for it, zero where it does not, and Kept how often it began to.
type SnapshotWait struct {
	Requested uint64
	Tenant    string // "" for the pool's own
	AtHard    bool   // for room under its tenant's hard limit, not for memory of the pool
	Since     time.Time
	KeptSince time.Time
	Kept      int
}

// Snapshot is the state of a pool at one moment.
type Snapshot struct {
	Pool     string
	Place    string
	Device   int32 // DLPack device id, 0 when there is none
	Taken    time.Time
	Stats    Stats
	Segments []SnapshotSegment
	Waiting  []SnapshotWait // those of one tenant and range of sizes in order of arrival
	Trace    []TraceEntry
	Lost     uint64 // actions that the ring no longer held
}

// Snapshot takes the pool's state. The pool is locked meanwhile.
func (p *Pool) Snapshot() *Snapshot {
	emptyFronts()
	p.origin.list.Drain()
	s := &Snapshot{Pool: p.options.name}
	if place := p.Place(); place != nil {
		s.Place = place.String()
		if _, id, err := place.DLPackDevice(); err == nil {
			s.Device = id
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopShards()
	defer p.resumeShards()
	s.Taken, s.Stats = time.Now(), p.stats()
	if p.trace != nil {
		p.trace.put(TraceEntry{Action: traceSnapshot})
		s.Trace, s.Lost = p.trace.list()
	}
	p.heap.Walk(func(n int32, base, size uintptr) {
		s.Segments = append(s.Segments, SnapshotSegment{Address: base, Size: uint64(size), Dedicated: p.segs[n].dedicated, Kept: p.heap.Closed(n)})
	}, func(piece tlsf.Piece) {
		seg := &s.Segments[len(s.Segments)-1]
		seg.Blocks = append(seg.Blocks, snapshotBlock(seg.Address, piece))
	})
	s.Waiting = p.snapshotWaits()
	return s
}

// snapshotWaits lists those who wait. p.mu is held.
func (p *Pool) snapshotWaits() (all []SnapshotWait) {
	r := &p.waiters
	for _, line := range r.lines {
		for lane := range line.lanes {
			for x := line.lanes[lane].first; x != nil; x = x.next {
				wait := SnapshotWait{Requested: uint64(x.w.r.Size), Since: x.since, Kept: x.holds}
				if t := x.w.tenant; t != nil {
					wait.Tenant = t.name
				}
				if r.hold.of == x {
					wait.KeptSince = r.hold.since
				}
				all = append(all, wait)
			}
		}
	}
	p.eachTenant(func(t *Tenant) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, x := range t.queue {
			all = append(all, SnapshotWait{Requested: x.asked, Tenant: t.name, AtHard: true, Since: x.since})
		}
	})
	return all
}

func snapshotBlock(base uintptr, piece tlsf.Piece) SnapshotBlock {
	b := SnapshotBlock{Address: base + piece.Offset, Size: uint64(piece.Size), State: BlockFree}
	if piece.Free || piece.User == 0 {
		return b
	}
	c := owner.At(piece.User)
	switch {
	case c.Count() > 0:
		b.State, b.Requested = BlockActive, c.Requested
		b.Tag, b.stack = tagName(c.Tag), c.Stack
	case c.Flags()&owner.Queued != 0:
		b.State, b.Requested = BlockPending, c.Requested
	default:
		b.Cached = true
	}
	return b
}

// field is an entry of a dictionary whose order is kept.
type field struct {
	key   string
	value any
}

// tree builds the snapshot as PyTorch's tools read it: dictionaries ([]field),
// lists ([]any), strings, integers and booleans.
func (s *Snapshot) tree() []field {
	segments := make([]any, 0, len(s.Segments))
	for i := range s.Segments {
		segments = append(segments, s.segmentTree(&s.Segments[i]))
	}
	actions := make([]any, 0, len(s.Trace))
	for i := range s.Trace {
		actions = append(actions, s.actionTree(&s.Trace[i]))
	}
	// The viewer looks traces up by device number.
	traces := make([]any, s.Device+1)
	for i := range traces {
		traces[i] = []any{}
	}
	traces[s.Device] = actions
	settings := []field{{"pool", s.Pool}, {"place", s.Place}, {"lost_actions", int64(s.Lost)}}
	for _, stat := range []struct {
		name string
		of   Stat
	}{
		{"allocated_bytes", s.Stats.AllocatedBytes}, {"reserved_bytes", s.Stats.ReservedBytes},
		{"active_bytes", s.Stats.ActiveBytes}, {"requested_bytes", s.Stats.RequestedBytes},
	} {
		settings = append(settings, field{stat.name + ".current", stat.of.Current}, field{stat.name + ".peak", stat.of.Peak})
	}
	return []field{
		{"segments", segments},
		{"device_traces", traces},
		{"allocator_settings", settings},
		{"external_annotations", []any{}},
	}
}

func (s *Snapshot) segmentTree(seg *SnapshotSegment) []field {
	blocks := make([]any, 0, len(seg.Blocks))
	for i := range seg.Blocks {
		b := &seg.Blocks[i]
		blocks = append(blocks, []field{
			{"address", int64(b.Address)}, {"size", int64(b.Size)}, {"requested_size", int64(b.Requested)},
			{"state", string(b.State)}, {"frames", framesTree(b.stack, b.Tag)},
		})
	}
	kind := "small"
	if seg.Dedicated {
		kind = "large"
	}
	return []field{
		{"device", int64(s.Device)}, {"address", int64(seg.Address)}, {"total_size", int64(seg.Size)},
		{"allocated_size", int64(seg.sum(func(b *SnapshotBlock) uint64 {
			if b.State == BlockActive {
				return b.Size
			}
			return 0
		}))},
		{"active_size", int64(seg.sum(func(b *SnapshotBlock) uint64 {
			if b.State != BlockFree {
				return b.Size
			}
			return 0
		}))},
		{"requested_size", int64(seg.sum(func(b *SnapshotBlock) uint64 { return b.Requested }))},
		{"stream", int64(0)}, {"segment_type", kind}, {"segment_pool_id", []any{int64(0), int64(0)}},
		{"is_expandable", false}, {"frames", []any{}}, {"blocks", blocks},
	}
}

func (s *Snapshot) actionTree(e *TraceEntry) []field {
	t := []field{
		{"action", string(e.Action)}, {"addr", int64(e.Address)}, {"size", int64(e.Size)},
		{"stream", int64(0)}, {"time_us", e.Time.UnixMicro()}, {"frames", framesTree(e.stack, e.Tag)},
	}
	if e.Action == traceOOM {
		t = append(t, field{"device_free", int64(0)})
	}
	return t
}

// framesTree lists a recorded stack, innermost first; a tag shows as a frame of
// its own, because the viewer has no other place for it.
func framesTree(stack uint32, tag string) []any {
	frames := []any{}
	if tag != "" {
		frames = append(frames, []field{{"filename", "tag"}, {"line", int64(0)}, {"name", tag}})
	}
	for f := range userFrames(stackPCs(stack)) {
		frames = append(frames, []field{{"filename", f.File}, {"line", int64(f.Line)}, {"name", f.Function}})
	}
	return frames
}

// WriteJSON writes the snapshot in the structure of PyTorch's memory snapshots.
func (s *Snapshot) WriteJSON(w io.Writer) error {
	b := bufio.NewWriter(w)
	if err := writeJSON(b, s.tree()); err != nil {
		return err
	}
	if err := b.WriteByte('\n'); err != nil {
		return err
	}
	return b.Flush()
}

func writeJSON(w *bufio.Writer, v any) error {
	switch v := v.(type) {
	case []field:
		return writeJSONList(w, '{', '}', len(v), func(i int) error {
			if err := writeJSON(w, v[i].key); err != nil {
				return err
			}
			_ = w.WriteByte(':') // bufio keeps the error for Flush
			return writeJSON(w, v[i].value)
		})
	case []any:
		return writeJSONList(w, '[', ']', len(v), func(i int) error { return writeJSON(w, v[i]) })
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func writeJSONList(w *bufio.Writer, open, end byte, n int, each func(int) error) error {
	_ = w.WriteByte(open) // bufio keeps the error for Flush
	for i := range n {
		if i > 0 {
			_ = w.WriteByte(',')
		}
		if err := each(i); err != nil {
			return err
		}
	}
	return w.WriteByte(end)
}
