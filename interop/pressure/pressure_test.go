package pressure

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

// write writes files of a directory.
func write(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
}

// A process in each kind of hierarchy: with a namespace or without, and with the limit at its own group or above.
func TestGroupOfTheProcess(t *testing.T) {
	const own1, own2 = "12:cpu,cpuacct:/x\n4:memory:/docker/ab\n0::/unified\n", "0::/user/service\n"
	for name, c := range map[string]struct {
		cgroup, mount, dir string
		files              map[string]string
	}{
		"version 2": {own2, "30 20 0:26 / MNT rw shared:4 - cgroup2 cgroup2 rw", "user/service",
			map[string]string{"user/service/memory.max": "1000\n", "user/service/memory.current": "7\n"}},
		"version 2, limit above": {own2, "30 20 0:26 / MNT rw - cgroup2 cgroup2 rw", "user",
			map[string]string{"user/memory.max": "1000", "user/memory.current": "7", "user/service/memory.max": "max", "user/service/memory.current": "5"}},
		"version 2, given limit": {own2, "30 20 0:26 / MNT rw - cgroup2 cgroup2 rw", "user/service",
			map[string]string{"user/service/memory.max": "max", "user/service/memory.current": "5"}},
		"version 2, namespace": {"0::/\n", "30 20 0:26 / MNT rw - cgroup2 cgroup rw", ".",
			map[string]string{"memory.max": "1000", "memory.current": "7"}},
		"version 1": {own1, "33 20 0:27 / OTHER rw - cgroup cpu rw,cpu\n34 20 0:28 / MNT rw - cgroup cgroup rw,memory", "docker/ab",
			map[string]string{"docker/ab/memory.limit_in_bytes": "1000", "docker/ab/memory.usage_in_bytes": "7"}},
		"version 1, container": {own1, "34 20 0:28 /docker/ab MNT ro master:1 - cgroup cgroup rw,memory", ".",
			map[string]string{"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "7"}},
		"version 1, other root": {own1, "34 20 0:28 /elsewhere MNT ro master:1 - cgroup cgroup rw,memory", ".",
			map[string]string{"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "7"}},
	} {
		dir := t.TempDir()
		mnt := filepath.Join(dir, "mnt")
		write(t, mnt, c.files)
		write(t, dir, map[string]string{"cgroup": c.cgroup, "mountinfo": replaceMount(c.mount, mnt)})
		g, err := findGroup(filepath.Join(dir, "mountinfo"), filepath.Join(dir, "cgroup"), 1000)
		require.NoError(t, err, name)
		require.Equal(t, filepath.Join(mnt, c.dir), g.dir, name)
	}
}

func TestNoGroup(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"none": "", "cgroup": "0::/a\n", "mountinfo": replaceMount("30 20 0:26 / MNT rw - cgroup2 cgroup2 rw", dir)})
	in := func(name string) string { return filepath.Join(dir, name) }
	_, err := findGroup(in("mountinfo"), in("none"), 1)
	require.ErrorContains(t, err, "no control group of memory")
	_, err = findGroup(in("none"), in("cgroup"), 1)
	require.ErrorContains(t, err, "no mount of type cgroup2")
	_, err = findGroup(in("mountinfo"), in("cgroup"), 1)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = findGroup(in("missing"), in("cgroup"), 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A part of the limit that is not a number from 0 to 1 is refused before the limit of the pools is set.
func TestInvalidOptions(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		option  string
	}{
		"At in percent":         {Options{At: 80}, "At"},
		"negative At":           {Options{At: -0.1}, "At"},
		"At is NaN":             {Options{At: math.NaN()}, "At"},
		"At is infinite":        {Options{At: math.Inf(1)}, "At"},
		"PoolLimit in percent":  {Options{PoolLimit: 70}, "PoolLimit"},
		"negative PoolLimit":    {Options{PoolLimit: -0.1}, "PoolLimit"},
		"PoolLimit is NaN":      {Options{PoolLimit: math.NaN()}, "PoolLimit"},
		"PoolLimit is infinite": {Options{At: 0.5, PoolLimit: math.Inf(1)}, "PoolLimit"},
	} {
		var err *OptionError
		require.ErrorAs(t, Watch(t.Context(), c.options), &err, name)
		require.Equal(t, c.option, err.Option, name)
		require.ErrorContains(t, err, "Options."+c.option+" is ", name)
	}
	for _, o := range []Options{{}, {At: 1, PoolLimit: 1}, {At: 0.5, PoolLimit: 0.7}} {
		require.NoError(t, o.check())
	}
}

func replaceMount(line, mnt string) string { return strings.ReplaceAll(line, "MNT", mnt) }

// The group's memory in use without droppable page cache, and its stalls, decide when pools are trimmed.
func TestLook(t *testing.T) {
	for _, of := range []files{v1, v2} {
		dir := t.TempDir()
		trims, freed := 0, uint64(0)
		w := &watch{group: group{dir, of}, limit: 1000, at: 800, trim: func() uint64 { trims++; return freed }}
		now := time.Now()
		look := func() int {
			trims = 0
			now = now.Add(period)
			w.check(now)
			return trims
		}
		require.Zero(t, look(), "no file: nothing is known")
		write(t, dir, map[string]string{of.usage: "800\n"})
		require.Zero(t, look())
		write(t, dir, map[string]string{of.usage: "900\n", "memory.stat": "anon 600\n" + of.inactive + " 101\n"})
		require.Zero(t, look(), "the kernel can drop page cache")
		write(t, dir, map[string]string{"memory.stat": "anon 600\n" + of.inactive + " 99\n"})
		freed = 100
		require.Equal(t, 1, look())
		freed = 9
		require.Equal(t, 1, look())
		require.Zero(t, look(), "the last one freed nothing to speak of")
		now = now.Add(vainPause)
		require.Equal(t, 1, look())
		now = now.Add(vainPause)
		write(t, dir, map[string]string{of.usage: "500\n", "memory.pressure": "some avg10=9.99 avg60=50.00 avg300=0.00 total=5\nfull avg10=30.00"})
		require.Zero(t, look())
		write(t, dir, map[string]string{"memory.pressure": "some avg10=10.00 avg60=5.00 avg300=0.00 total=5\nfull avg10=0.00"})
		require.Equal(t, 1, look())
	}
}

// Watch sets the limit of the default pools, and its goroutine trims until its context ends.
func TestWatch(t *testing.T) {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithDecay(0))
	defer func() { require.NoError(t, pool.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer memmgr.SetDefaultLimit(0)
	if err := Watch(ctx, Options{Limit: 1 << 20, PoolLimit: 0.5}); err != nil {
		t.Skipf("no control group here: %v", err)
	}
	p, err := memmgr.Default(nil, 0)
	require.NoError(t, err)
	_, err = memmgr.New(p, memmgr.Request{Size: 1 << 20})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory, "the default pools may hold half a MiB")
	b, err := memmgr.New(pool, memmgr.Request{Size: 8 << 20})
	require.NoError(t, err)
	b.Release()
	require.Eventually(t, func() bool { return pool.Stats().ReservedBytes.Current == 0 }, time.Minute, time.Millisecond)
}
