package memlimit

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	const meminfo = "MemFree:  1 kB\nMemTotal:       16384 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		bytes uint64
		what  string
	}{
		"no groups":          {map[string]string{"proc/meminfo": meminfo}, 16 << 20, "machine"},
		"version 2":          {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096\n"}, 4096, "group"},
		"in a container":     {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/memory.max": "8192\n"}, 8192, "group"},
		"version 1":          {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,memory:/d\n3:pids:/d\n", "sys/fs/cgroup/memory/d/memory.limit_in_bytes": "12288\n"}, 12288, "group"},
		"version 1, none":    {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16 << 20, "machine"},
		"more than there is": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "99999999999\n"}, 16 << 20, "machine"},
		"rubbish":            {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::\n:\n\nx", "sys/fs/cgroup/memory.max": "-1"}, 16 << 20, "machine"},
		"a limit alone":      {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192\n"}, 8192, "group"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for path, text := range c.files {
				files[path] = &fstest.MapFile{Data: []byte(text)}
			}
			n, what, err := Find(files)
			require.NoError(t, err)
			require.Equal(t, c.bytes, n)
			require.Contains(t, what, c.what)
		})
	}
	_, _, err := Find(fstest.MapFS{})
	require.Error(t, err)
}

func TestThisMachine(t *testing.T) {
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		t.Skip("no proc here: ", err)
	}
	n, _, err := Find(os.DirFS("/"))
	require.NoError(t, err)
	require.Positive(t, n)
}
