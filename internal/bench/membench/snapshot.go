//go:build cgo && linux

package main

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

// writeSnapshot uses a pool for a while and then writes reports about it: the snapshot as JSON, pickle,
// picture and table, and a profile.
func writeSnapshot(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	memmgr.RecordStacks(16)
	defer memmgr.RecordStacks(0)
	p := memmgr.NewPool(newAddresses(), memmgr.WithName("demonstration"), memmgr.WithTrace(4000), memmgr.WithLarge(8<<20))
	live := demonstrate(p)
	s := p.Snapshot()
	for name, write := range map[string]func(io.Writer, *memmgr.Snapshot) error{
		"snapshot.json": report.WriteJSON, "snapshot.pickle": report.WritePickle, "snapshot.svg": report.WriteSVG,
		"snapshot.txt":  report.WriteTable,
		"profile.pb.gz": func(w io.Writer, _ *memmgr.Snapshot) error { return report.WriteProfile(w) },
	} {
		if err := writeFile(filepath.Join(dir, name), func(w io.Writer) error { return write(w, s) }); err != nil {
			return err
		}
	}
	for _, b := range live {
		b.Release()
	}
	return p.Close()
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// demonstrate allocates and releases like a program with weights, a cache and short-lived buffers.
func demonstrate(p memmgr.Resource) (live []memmgr.Buffer) {
	rng := rand.New(rand.NewPCG(8, 8))
	must := func(r memmgr.Resource, size int, tag string) memmgr.Buffer {
		b, err := memmgr.New(r, memmgr.Request{Size: uintptr(size), Tag: tag})
		if err != nil {
			panic(err)
		}
		return b
	}
	for range 12 {
		live = append(live, must(p, 200000+rng.IntN(3<<20), "weights"))
	}
	live = append(live, must(p, 12<<20, "embedding"), must(p, 9<<20+12345, "embedding"))
	var cache []memmgr.Buffer
	for range 300 {
		cache = append(cache, must(p, 10000+rng.IntN(400000), "cache"))
		if len(cache) > 40 {
			k := rng.IntN(len(cache))
			cache[k].Release()
			cache[k] = cache[len(cache)-1]
			cache = cache[:len(cache)-1]
		}
		must(p, 1000+rng.IntN(1<<20), "work").Release()
	}
	return append(live, cache...)
}
