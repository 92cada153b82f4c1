// Package report writes reports about the memory of package memmgr: the state of a
// pool as PyTorch's memory viewer reads it, as a picture and as a table; a profile for
// pprof; and the memory that is still referenced, for finding leaks.
//
//	err := report.WriteSVG(file, pool.Snapshot())  // WriteTable, WriteJSON, WritePickle: other formats
//	err = report.WriteProfile(file)                // go tool pprof reads it
//	n, err := report.WriteLeaks(os.Stderr)         // writes nothing and returns 0 without leaks
//	counters := report.Vars()                      // of all open pools, for package expvar
//
// A snapshot is a copy of the state of a pool: writing it holds no lock of the pool, and it can be
// written more than once. [memmgr.WithTrace] adds the last actions to it, and [memmgr.RecordStacks]
// the places of allocation. All functions are safe for concurrent use. They return the error of
// the writer.
package report

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/usmbridge/usmbridge/memmgr"
)

// field is an entry of an ordered dictionary.
type field struct {
	key   string
	value any
}

// tree builds the snapshot as PyTorch's tools read it: dictionaries ([]field),
// lists ([]any), strings, integers and booleans.
func tree(s *memmgr.Snapshot) []field {
	segments := make([]any, 0, len(s.Segments))
	for i := range s.Segments {
		segments = append(segments, segmentTree(s, &s.Segments[i]))
	}
	actions := make([]any, 0, len(s.Trace))
	for i := range s.Trace {
		actions = append(actions, actionTree(&s.Trace[i]))
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
		of   memmgr.Stat
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

func segmentTree(s *memmgr.Snapshot, seg *memmgr.SnapshotSegment) []field {
	blocks := make([]any, 0, len(seg.Blocks))
	for i := range seg.Blocks {
		b := &seg.Blocks[i]
		blocks = append(blocks, []field{
			{"address", int64(b.Address)}, {"size", int64(b.Size)}, {"requested_size", int64(b.Requested)},
			{"state", string(b.State)}, {"frames", framesTree(b.Stack, b.Tag)},
		})
	}
	kind := "small" // PyTorch's segments for small blocks have up to 2 MiB
	if seg.Size > 2<<20 {
		kind = "large"
	}
	return []field{
		{"device", int64(s.Device)}, {"address", int64(seg.Address)}, {"total_size", int64(seg.Size)},
		{"allocated_size", int64(sum(seg, func(b *memmgr.SnapshotBlock) uint64 {
			if b.State == memmgr.BlockActive {
				return b.Size
			}
			return 0
		}))},
		{"active_size", int64(sum(seg, func(b *memmgr.SnapshotBlock) uint64 {
			if b.State != memmgr.BlockFree {
				return b.Size
			}
			return 0
		}))},
		{"requested_size", int64(sum(seg, func(b *memmgr.SnapshotBlock) uint64 { return b.Requested }))},
		{"stream", int64(0)}, {"segment_type", kind}, {"segment_pool_id", []any{int64(0), int64(0)}},
		{"is_expandable", false}, {"frames", []any{}}, {"blocks", blocks},
	}
}

func actionTree(e *memmgr.TraceEntry) []field {
	t := []field{
		{"action", string(e.Action)}, {"addr", int64(e.Address)}, {"size", int64(e.Size)},
		{"stream", int64(0)}, {"time_us", e.Time.UnixMicro()}, {"frames", framesTree(e.Stack, e.Tag)},
	}
	if e.Action == "oom" {
		t = append(t, field{"device_free", int64(0)})
	}
	return t
}

// framesTree lists a recorded stack, innermost first; a tag shows as a frame of
// its own, because the viewer has no other place for it.
func framesTree(stack memmgr.Stack, tag string) []any {
	frames := []any{}
	if tag != "" {
		frames = append(frames, []field{{"filename", "tag"}, {"line", int64(0)}, {"name", tag}})
	}
	for f := range stack.Frames() {
		frames = append(frames, []field{{"filename", f.File}, {"line", int64(f.Line)}, {"name", f.Function}})
	}
	return frames
}

// WriteJSON writes the snapshot in the structure of PyTorch's memory snapshots.
func WriteJSON(w io.Writer, s *memmgr.Snapshot) error {
	b := bufio.NewWriter(w)
	if err := writeJSON(b, tree(s)); err != nil {
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

// sum adds up a figure of the blocks of a segment.
func sum(s *memmgr.SnapshotSegment, f func(*memmgr.SnapshotBlock) uint64) (n uint64) {
	for i := range s.Blocks {
		n += f(&s.Blocks[i])
	}
	return n
}
