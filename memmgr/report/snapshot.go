// Package report writes reports about the memory of package memmgr: the state of a
// pool as PyTorch's memory viewer reads it, as a picture and as a table; a profile for
// pprof; and the memory that is still referenced, for finding leaks.
//
//	err := report.WriteSVG(file, pool.Snapshot())  // WriteTable, WriteJSON: other formats
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
	"encoding/json"
	"io"

	"github.com/usmbridge/usmbridge/memmgr"
)

type dict = map[string]any

// tree builds the snapshot as PyTorch's tools read it.
func tree(s *memmgr.Snapshot) dict {
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
	settings := dict{"pool": s.Pool, "place": s.Place, "lost_actions": s.Lost}
	for _, stat := range []struct {
		name string
		of   memmgr.Stat
	}{
		{"allocated_bytes", s.Stats.AllocatedBytes}, {"reserved_bytes", s.Stats.ReservedBytes},
		{"active_bytes", s.Stats.ActiveBytes}, {"requested_bytes", s.Stats.RequestedBytes},
	} {
		settings[stat.name+".current"], settings[stat.name+".peak"] = stat.of.Current, stat.of.Peak
	}
	return dict{
		"segments":             segments,
		"device_traces":        traces,
		"allocator_settings":   settings,
		"external_annotations": []any{},
	}
}

func segmentTree(s *memmgr.Snapshot, seg *memmgr.SnapshotSegment) dict {
	blocks, requested := make([]any, 0, len(seg.Blocks)), uint64(0)
	for i := range seg.Blocks {
		b := &seg.Blocks[i]
		requested += b.Requested
		blocks = append(blocks, dict{
			"address": b.Address, "size": b.Size, "requested_size": b.Requested,
			"state": b.State, "frames": framesTree(b.Stack, b.Tag),
		})
	}
	kind := "small" // PyTorch's segments for small blocks have up to 2 MiB
	if seg.Size > 2<<20 {
		kind = "large"
	}
	use := useOf(seg)
	return dict{
		"device": s.Device, "address": seg.Address, "total_size": seg.Size,
		"allocated_size": use.used, "active_size": use.used + use.pending, "requested_size": requested,
		"stream": 0, "segment_type": kind, "segment_pool_id": []any{0, 0},
		"is_expandable": false, "frames": []any{}, "blocks": blocks,
	}
}

func actionTree(e *memmgr.TraceEntry) dict {
	t := dict{
		"action": e.Action, "addr": e.Address, "size": e.Size,
		"stream": 0, "time_us": e.Time.UnixMicro(), "frames": framesTree(e.Stack, e.Tag),
	}
	if e.Action == "oom" {
		t["device_free"] = 0
	}
	return t
}

// framesTree lists a recorded stack, innermost first; a tag shows as a frame of
// its own, because the viewer has no other place for it.
func framesTree(stack memmgr.Stack, tag string) []any {
	frames := []any{}
	if tag != "" {
		frames = append(frames, dict{"filename": "tag", "line": 0, "name": tag})
	}
	for f := range stack.Frames() {
		frames = append(frames, dict{"filename": f.File, "line": f.Line, "name": f.Function})
	}
	return frames
}

// WriteJSON writes the snapshot in the structure of PyTorch's memory snapshots. PyTorch's memory viewer reads them as
// pickles:
//
//	python3 -c 'import json, pickle, sys; pickle.dump(json.load(sys.stdin), sys.stdout.buffer)' <s.json >s.pickle
func WriteJSON(w io.Writer, s *memmgr.Snapshot) error { return json.NewEncoder(w).Encode(tree(s)) }
