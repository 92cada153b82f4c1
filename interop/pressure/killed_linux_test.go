package pressure

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
)

const (
	inGroup   = "USMBRIDGE_TEST_GROUP" // the directory of the group, for the process that fills it
	withWatch = "USMBRIDGE_TEST_WATCH"
	testLimit = 256 << 20
)

// The kernel kills a process whose pool holds idle memory at the limit, and not one that calls Watch. Both run in a
// control group of their own below that of the test.
func TestWatchPreventsTheKill(t *testing.T) {
	if dir := os.Getenv(inGroup); dir != "" {
		fill(t, dir)
		return
	}
	dir := testGroup(t)
	run := func(watch string) error {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWatchPreventsTheKill$")
		cmd.Env = append(os.Environ(), inGroup+"="+dir, withWatch+"="+watch)
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	var exit *exec.ExitError
	if err := run(""); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Skipf("no kill at the limit without Watch (%v): the kernel does not enforce it here", err)
	}
	require.NoError(t, run("1"))
}

// testGroup makes a control group with the limit, or skips the test.
func testGroup(t *testing.T) string {
	path, of, err := ownPath("/proc/self/cgroup")
	if err != nil {
		t.Skip(err)
	}
	_, own, err := directory("/proc/self/mountinfo", path, of)
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(own, fmt.Sprintf("usmbridge-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Skipf("cannot make a control group: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	limit := []byte(strconv.Itoa(testLimit))
	if err := os.WriteFile(filepath.Join(dir, of.max), limit, 0); err != nil {
		t.Skipf("cannot limit the memory of a control group: %v", err)
	}
	for file, value := range map[string]string{"memory.swap.max": "0", "memory.memsw.limit_in_bytes": string(limit)} {
		_ = os.WriteFile(filepath.Join(dir, file), []byte(value), 0) // one of them exists, if there is swap
	}
	return dir
}

// fill leaves half of the limit idle in a pool, and then uses five eighths of the limit beside it.
func fill(t *testing.T, dir string) {
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0))
	if os.Getenv(withWatch) != "" {
		require.NoError(t, Watch(t.Context(), Options{}))
	}
	p := memmgr.NewPool(memmgr.Host(), memmgr.WithDecay(0))
	touched(t, p, testLimit/2).Release()
	require.NotZero(t, p.Stats().ReservedBytes.Current)
	const piece = 1 << 20
	for n := 0; n < testLimit/8*5; n += piece {
		defer touched(t, memmgr.Host(), piece).Release()
		time.Sleep(10 * time.Millisecond) // a process that grows faster than Watch looks can be killed
	}
	require.Zero(t, p.Stats().ReservedBytes.Current)
}

// touched allocates memory and writes to each page.
func touched(t *testing.T, r memmgr.Resource, size uintptr) memmgr.Buffer {
	b, err := memmgr.New(r, memmgr.Request{Size: size})
	require.NoError(t, err)
	data, err := b.Bytes()
	require.NoError(t, err)
	for i := 0; i < len(data); i += 4096 {
		data[i] = 1
	}
	return b
}
