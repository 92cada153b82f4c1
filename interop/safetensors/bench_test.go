//go:build linux

package safetensors_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/internal/transfer/transfertest"
	"github.com/usmbridge/usmbridge/interop/safetensors"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

const (
	benchTensors = 4
	benchBytes   = 2 << 30 // of all of them
	benchReaders = 2
	benchRounds  = 5
)

// benchFile writes a file of 2 GiB, which stays in the page cache.
func benchFile(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	var disk syscall.Statfs_t
	require.NoError(b, syscall.Statfs(dir, &disk))
	if disk.Bavail*uint64(disk.Bsize) < 2*benchBytes {
		b.Skipf("%s has less than %d bytes free", dir, 2*benchBytes)
	}
	a := testenv.Held(usmarray.Full(memmgr.Host(), usmarray.Float32, []int{benchBytes / benchTensors / 4}, 1.5))(b)
	tensors := map[string]*usmarray.Array{}
	for i := range benchTensors {
		tensors[fmt.Sprint(i)] = a
	}
	path := filepath.Join(dir, "2GiB.safetensors")
	require.NoError(b, safetensors.Save(context.Background(), path, tensors, safetensors.WriteOptions{InPlace: true}))
	return path
}

// plainRead reads a file with several goroutines, by position, into memory.
func plainRead(b *testing.B, f *os.File, to []byte, readers int) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range readers {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				at := (next.Add(1) - 1) << 20
				if at >= int64(len(to)) {
					return
				}
				piece := to[at:min(at+1<<20, int64(len(to)))]
				if _, err := f.ReadAt(piece, at); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	all.Wait()
}

// rss returns a field of /proc/self/status in KiB.
func rss(b *testing.B, key string) int64 {
	b.Helper()
	text := testenv.Must(os.ReadFile("/proc/self/status"))(b)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return testenv.Must(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(b)
		}
	}
	b.Fatal("no ", key)
	return 0
}

// beside returns the peak of additional resident memory during f, in MiB.
func beside(b *testing.B, f func()) float64 {
	b.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Logf("the peak of memory cannot be set back: %v", err)
		return -1
	}
	before := rss(b, "VmRSS")
	f()
	return float64(rss(b, "VmHWM")-before) / 1024
}

// contest runs functions in turns and returns the median seconds of each.
func contest(rounds int, runs ...func()) []float64 {
	times := make([][]float64, len(runs))
	for range rounds {
		for i, run := range runs {
			start := time.Now()
			run()
			times[i] = append(times[i], time.Since(start).Seconds())
		}
	}
	medians := make([]float64, len(runs))
	for i, t := range times {
		slices.Sort(t)
		medians[i] = t[len(t)/2]
	}
	return medians
}

// BenchmarkReadPlain compares reads of 2 GiB from the page cache into existing arrays with plain reads of the same
// file into existing memory, by the same number of goroutines. They run in turns. The bounds are a ratio of 0.9 for
// host-readable memory, and 16 MiB of additional memory. Device memory takes one more copy.
func BenchmarkReadPlain(b *testing.B) {
	path := benchFile(b)
	ctx := context.Background()
	file := testenv.Opened(os.Open(path))(b)
	f := testenv.Opened(safetensors.Open(path))(b)
	info := testenv.Must(file.Stat())(b)
	plain := testenv.Must(syscall.Mmap(-1, 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))(b)
	defer func() { require.NoError(b, syscall.Munmap(plain)) }()
	plainRead(b, file, plain, benchReaders)
	o := safetensors.ReadOptions{Readers: benchReaders}
	for _, memory := range []struct {
		name string
		pool func() *memmgr.Pool
	}{
		{"host", func() *memmgr.Pool { return transfertest.Pool(b, memmgr.Host()) }},
		{"usm-shared", func() *memmgr.Pool { return transfertest.USM(b, syclobj.USMShared) }},
		{"usm-device", func() *memmgr.Pool { return transfertest.USM(b, syclobj.USMDevice) }},
	} {
		b.Run(memory.name, func(b *testing.B) {
			arrays := testenv.Must(f.ReadAll(ctx, memory.pool(), o))(b)
			defer func() {
				for _, a := range arrays {
					a.Release()
				}
			}()
			ours := func() {
				for name, a := range arrays {
					require.NoError(b, f.ReadInto(ctx, name, a, o))
				}
			}
			require.NoError(b, memmgr.CloseDefaults()) // so that a ring is made anew, and counts
			mib := beside(b, ours)
			for range b.N {
				t := contest(benchRounds, func() { plainRead(b, file, plain, benchReaders) }, ours)
				b.ReportMetric(benchBytes/t[1]/1e9, "GB/s")
				b.ReportMetric(benchBytes/t[0]/1e9, "plain-GB/s")
				b.ReportMetric(t[0]/t[1], "of-plain")
				b.ReportMetric(mib, "MiB-beside")
			}
		})
	}
}
