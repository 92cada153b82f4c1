package report_test

import (
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

var pictureDir = flag.String("picture", "", "write the reports of TestPicture to this `directory`")

// TestPicture writes all reports of a pool that was used for a while. docs/memory.md shows the picture.
func TestPicture(t *testing.T) {
	dir := *pictureDir
	if dir == "" {
		dir = t.TempDir()
	}
	p := memmgr.NewPool(memtest.NewSimulated(), memmgr.WithName("demonstration"), memmgr.WithTrace(4000))
	live := demonstrate(t, p)
	s := p.Snapshot()
	for name, write := range map[string]func(io.Writer, *memmgr.Snapshot) error{
		"snapshot.json": report.WriteJSON, "snapshot.svg": report.WriteSVG,
		"snapshot.txt":  report.WriteTable,
		"profile.pb.gz": func(w io.Writer, _ *memmgr.Snapshot) error { return report.WriteProfile(w) },
	} {
		f := testenv.Must(os.Create(filepath.Join(dir, name)))(t)
		require.NoError(t, write(f, s))
		require.NoError(t, f.Close())
	}
	for _, b := range live {
		b.Release()
	}
	require.NoError(t, p.Close())
}

// demonstrate allocates and releases like a program with weights, a cache and short-lived buffers.
func demonstrate(t *testing.T, p memmgr.Resource) (live []memmgr.Buffer) {
	t.Helper()
	rng := rand.New(rand.NewPCG(8, 8))
	must := func(r memmgr.Resource, size int, tag string) memmgr.Buffer {
		return testenv.Must(memmgr.New(r, memmgr.Request{Size: uintptr(size), Tag: tag}))(t)
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
