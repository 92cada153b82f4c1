//go:build linux

package share_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// The second process of a test runs this test binary again, with a role.
const (
	roleEnv    = "USMBRIDGE_TEST_SHARE_ROLE"
	addressEnv = "USMBRIDGE_TEST_SHARE_ADDRESS"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		if os.Getenv(olderKernelEnv) != "" {
			share.ActAsOlderKernel()
		}
		role, ok := roles[name]
		if !ok {
			fmt.Println("error: no such role:", name)
			os.Exit(2)
		}
		if err := role(os.Getenv(addressEnv)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	memtest.Main(m)
}

// other is a second process.
type other struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	over  bool
}

// start starts a second process and kills it at the latest when the test ends.
func start(t testing.TB, role, address string) *other {
	t.Helper()
	return startAs(t, role, address, nil)
}

// startAs is start with attributes of the process. If the system does not allow them, the test
// is skipped.
func startAs(t testing.TB, role, address string, attributes *syscall.SysProcAttr) *other {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.SysProcAttr = attributes
	cmd.Env = append(os.Environ(), roleEnv+"="+role, addressEnv+"="+address)
	cmd.Stderr = os.Stderr
	in := testenv.Must(cmd.StdinPipe())(t)
	out := testenv.Must(cmd.StdoutPipe())(t)
	err := cmd.Start()
	if attributes != nil && err != nil {
		t.Skipf("the system does not start such a process: %v", err)
	}
	require.NoError(t, err)
	o := &other{t: t, cmd: cmd, in: in, lines: make(chan string, 1024)}
	go func() {
		defer close(o.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			o.lines <- s.Text()
		}
	}()
	t.Cleanup(o.kill)
	return o
}

// line waits for the next line of the process's output.
func (o *other) line() string {
	o.t.Helper()
	select {
	case s, ok := <-o.lines:
		require.True(o.t, ok, "the second process ended without a word")
		require.False(o.t, strings.HasPrefix(s, "error:"), s)
		return s
	case <-time.After(2 * soon): // the second process initializes like this one
		o.t.Fatal("the second process says nothing")
		return ""
	}
}

func (o *other) expect(want string) {
	o.t.Helper()
	require.Equal(o.t, want, o.line())
}

// say writes a line to the standard input of the process.
func (o *other) say(s string) {
	o.t.Helper()
	_, err := io.WriteString(o.in, s+"\n")
	require.NoError(o.t, err)
}

// kill ends the process with SIGKILL and waits for it.
func (o *other) kill() {
	if !o.over {
		o.over = true
		_ = o.cmd.Process.Kill()
		_ = o.cmd.Wait()
	}
}

// finish closes the standard input of the process and requires it to exit without an error.
func (o *other) finish() {
	o.t.Helper()
	o.over = true
	require.NoError(o.t, o.in.Close())
	for s := range o.lines {
		require.False(o.t, strings.HasPrefix(s, "error:"), s)
	}
	require.NoError(o.t, o.cmd.Wait())
}

// soon is the time limit of waits. Awaited events follow their cause within a second; the rest is
// for a machine that is busy with other tests.
const soon = time.Minute

func eventually(t testing.TB, what func() bool, message string, args ...any) {
	t.Helper()
	require.Eventually(t, what, soon, time.Millisecond, append([]any{message}, args...)...)
}

func background(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*soon)
	t.Cleanup(cancel)
	return ctx
}

// abstractName returns a unique abstract address. It stays short even if the name of the directory
// for temporary files is long.
func abstractName() string {
	return fmt.Sprintf("@usmbridge-test-%d-%x", os.Getpid(), rand.Uint64())
}

// newPool returns a pool of shareable memory. When the test ends, all blocks must have been
// returned.
func newPool(t testing.TB, a segment.Audience) *memmgr.Pool {
	t.Helper()
	r := testenv.Must(segment.NewHost(a))(t)
	p := memmgr.NewPool(r)
	t.Cleanup(func() {
		eventually(t, func() bool { return p.Stats().Allocation.Current == 0 }, "memory did not come back")
		require.NoError(t, p.Close())
		require.NoError(t, r.Close())
	})
	return p
}

// listen starts a server, closes it when the test ends, and requires that no state is left then.
func listen(t testing.TB, o share.Options) *share.Server {
	t.Helper()
	s := testenv.Must(share.Listen(background(t), "", o))(t)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		eventually(t, func() bool { return s.Stats() == share.Stats{} }, "the server left something")
	})
	return s
}

// serving returns a pool of memory that peers can write and a server.
func serving(t testing.TB, o share.Options) (*memmgr.Pool, *share.Server) {
	t.Helper()
	return newPool(t, segment.PeersWrite), listen(t, o)
}

// sharing is serving with an array in the pool.
func sharing(t testing.TB, o share.Options, shape ...int) (*memmgr.Pool, *share.Server, *usmarray.Array) {
	t.Helper()
	pool, s := serving(t, o)
	return pool, s, counting(t, pool, shape...)
}

func dial(t testing.TB, s *share.Server, o share.Options) *share.Peer {
	t.Helper()
	p := testenv.Must(share.Dial(background(t), s.Address(), o))(t)
	t.Cleanup(func() { hangUp(t, p) })
	return p
}

func hangUp(t testing.TB, p *share.Peer) {
	t.Helper()
	require.NoError(t, p.Close())
	select {
	case <-p.Done():
	case <-time.After(soon):
		t.Fatalf("the connection stays: %+v", p.Stats())
	}
	eventually(t, func() bool { return p.Stats().Mapped == 0 }, "something stays mapped")
}

// publish creates an array of 0, 1, 2, … and publishes it. The server holds the only reference.
func publish(t testing.TB, s *share.Server, p memmgr.Resource, name string, shape ...int) *usmarray.Array {
	t.Helper()
	a := counting(t, p, shape...)
	require.NoError(t, s.Publish(background(t), name, a))
	return a
}

func counting(t testing.TB, r memmgr.Resource, shape ...int) *usmarray.Array {
	t.Helper()
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i)
	}
	return testenv.Held(usmarray.FromSlice(r, data, shape))(t)
}

// mappings returns the number of mapped segments in this process, including its own.
func mappings() (n int, err error) {
	text, err := os.ReadFile("/proc/self/maps")
	return strings.Count(string(text), "/memfd:usmbridge"), err
}

// nothingMapped waits until all memory of other processes is unmapped. The last reference can
// belong to the goroutine that watches the maker's process.
func nothingMapped(t testing.TB) {
	t.Helper()
	eventually(t, func() bool {
		n, err := mappings()
		return err == nil && n == 0
	}, "memory of other processes stays mapped")
}

// descriptors returns the number of open files of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	all := testenv.Must(os.ReadDir("/proc/self/fd"))(t)
	return len(all)
}
