//go:build cgo && linux

package pymodule_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/usmarray"
)

// soakEnv is the environment variable with the number of exchanges in each direction.
const soakEnv = "USMBRIDGE_SOAK"

// exchange is a kind of exchange. A round of about 1000 exchanges has n of this kind; n is small for slow
// kinds.
type exchange struct {
	name string
	n    int
	once func() error
}

// soakers has the objects that the exchanges use.
type soakers struct {
	rt           *syclobj.Runtime
	host, usm    *usmarray.Array // usm may be nil
	lent         *usmarray.Array
	server       *share.Server
	peer         *share.Peer
	slice        []float32
	view         dlpack.View
	dict         usmarray.USMInterface
	numpy, bytes *python.Object
}

// releasing returns an exchange by f, which releases its result.
func releasing[T interface{ Release() }](f func() (T, error)) func() error {
	return func() error {
		x, err := f()
		if err == nil {
			x.Release()
		}
		return err
	}
}

func (s *soakers) out() []exchange {
	tensor := func(o usmarray.ExportOptions) func() error {
		return releasing(func() (dlpack.Tensor, error) { return s.host.DLPackWith(o) })
	}
	kinds := []exchange{
		{"legacy", 300, tensor(usmarray.ExportOptions{Legacy: true})},
		{"versioned", 400, tensor(usmarray.ExportOptions{})},
		{"copied", 9, tensor(usmarray.ExportOptions{Copy: usmarray.CopyAlways})},
		{"Python", 40, releasing(func() (*python.Object, error) { return pymodule.ToPython(s.host) })},
		{"handle", 1, releasing(func() (*usmarray.Array, error) {
			h, err := s.server.Export(context.Background(), s.lent, share.ExportOptions{})
			if err != nil {
				return nil, err
			}
			return s.peer.Open(context.Background(), h)
		})},
	}
	if s.usm != nil {
		kinds = append(kinds, exchange{"dictionary", 150, func() error { return testenv.ErrorOf(s.usm.USMInterface()) }},
			exchange{"versioned, USM", 100, releasing(func() (dlpack.Tensor, error) { return s.usm.DLPack() })})
	}
	return kinds
}

func (s *soakers) in() []exchange {
	array := func(name string, n int, f func() (*usmarray.Array, error)) exchange {
		return exchange{name, n, releasing(f)}
	}
	tensor := func(versioned bool) func() (*usmarray.Array, error) {
		return func() (*usmarray.Array, error) {
			x, err := dlpack.Export(&s.view, 0, versioned, dlpack.Owner{})
			if err != nil {
				return nil, err
			}
			a, err := usmarray.FromDLPack(s.rt, x)
			if err != nil {
				x.Release()
			}
			return a, err
		}
	}
	kinds := []exchange{
		array("legacy", 350, tensor(false)),
		array("versioned", 350, tensor(true)),
		array("slice", 100, func() (*usmarray.Array, error) { return usmarray.FromPinnedSlice(s.slice, nil) }),
		array("NumPy", 30, func() (*usmarray.Array, error) { return pymodule.FromPython(s.numpy) }),
		array("buffer", 19, func() (*usmarray.Array, error) { return pymodule.FromPython(s.bytes) }),
		array("attach", 1, func() (*usmarray.Array, error) { return s.peer.Attach(context.Background(), "lent") }),
	}
	if s.usm != nil {
		kinds = append(kinds, array("dictionary", 150, func() (*usmarray.Array, error) { return usmarray.FromUSMInterface(s.rt, &s.dict, nil) }))
	}
	return kinds
}

// leftovers has the counters that an exchange must not change.
type leftovers struct {
	buffers, bytes uint64
	objects        syclobj.Live
	leases, opened int
}

func (s *soakers) leftovers() leftovers {
	runtime.GC()
	memmgr.Flush()
	buffers, bytes := memmgr.LiveCount()
	l := leftovers{uint64(buffers), uint64(bytes), syclobj.LiveObjects(), s.server.Stats().Leases, s.peer.Stats().Opened}
	l.objects.Events = 0 // a queue may keep the event of its last work
	return l
}

// residentBytes returns the resident memory of the process, after Go has returned its free memory.
func residentBytes(t *testing.T) int {
	debug.FreeOSMemory()
	text := testenv.Must(os.ReadFile("/proc/self/statm"))(t)
	pages := testenv.Must(strconv.Atoi(strings.Fields(string(text))[1]))(t)
	return pages * os.Getpagesize()
}

// turn runs rounds until count exchanges are done, and returns their number.
func turn(t *testing.T, kinds []exchange, count int) (done int) {
	for done < count {
		for _, k := range kinds {
			for range k.n {
				if err := k.once(); err != nil {
					require.NoError(t, err, k.name)
				}
			}
			done += k.n
		}
	}
	return done
}

// soak checks that count exchanges leave no objects and that resident memory does not grow. It runs them
// in four quarters and records the minimum of resident memory in each. A leak raises the minimum of each
// quarter, while one-time growth and temporary memory do not. The minimum must not rise by more than 1 %
// over four consecutive quarters. If it does, up to eight more quarters are run.
func (s *soakers) soak(t *testing.T, direction string, kinds []exchange, count int) {
	turn(t, kinds, max(count/20, 2000))
	var before leftovers
	require.Eventually(t, func() bool {
		before = s.leftovers()
		return before.leases == 0 && before.opened == 0
	}, time.Minute, 10*time.Millisecond)
	start, warm, done := time.Now(), residentBytes(t), 0
	var least []int
	rise := func() int { return least[len(least)-1] - least[len(least)-4] }
	for len(least) < 4 || (rise() > least[len(least)-4]/100 && len(least) < 12) {
		quarter := math.MaxInt
		for range 5 {
			done += turn(t, kinds, max(count/20, 1))
			quarter = min(quarter, residentBytes(t))
		}
		least = append(least, quarter)
	}
	require.LessOrEqual(t, rise(), least[len(least)-4]/100, "resident memory grew: %d", least)
	var after leftovers
	require.Eventually(t, func() bool {
		after = s.leftovers()
		return after == before
	}, time.Minute, 10*time.Millisecond, "counters were %+v before and are %+v after", before, &after)
	t.Logf("%s: %d exchanges of %d kinds in %.0f s, resident %d KiB before, %d KiB after",
		direction, done, len(kinds), time.Since(start).Seconds(), warm>>10, least[len(least)-1]>>10)
}

// TestSoak repeats all kinds of exchanges in a child process. USMBRIDGE_SOAK sets their number.
func TestSoak(t *testing.T) {
	count := 100000
	if text := os.Getenv(soakEnv); text != "" {
		count = testenv.Must(strconv.Atoi(text))(t)
	}
	if asan() {
		t.Skip("the address sanitizer keeps freed memory, so resident memory grows")
	}
	if os.Getenv(childEnv) == "" {
		testpython.Need(t, "numpy")
		out := inProcess(t, "soak")
		require.Contains(t, out, "--- PASS: TestSoak")
		t.Log(out)
		return
	}
	py, rt := start(t)
	s := soaking(t, py, rt)
	s.soak(t, "out", s.out(), count)
	s.soak(t, "in", s.in(), count)
}

// asan reports whether this program has the address sanitizer.
func asan() bool { return strings.Contains(fmt.Sprint(hostFlags), "-asan") }

// soaking makes the objects that the exchanges use.
func soaking(t *testing.T, py *python.Interpreter, rt *syclobj.Runtime) *soakers {
	s := &soakers{rt: rt, slice: make([]float32, 24)}
	array := func(r memmgr.Resource) *usmarray.Array {
		a := testenv.Held(usmarray.Zeros(r, usmarray.Float32, []int{4, 6}))(t)
		return a
	}
	s.host = array(memmgr.NewPool(memmgr.Host()))
	if rt.HasSYCL() {
		s.usm = array(memmgr.USM(rt.DefaultQueue(), syclobj.USMShared))
		var err error
		s.dict, err = s.usm.USMInterface()
		require.NoError(t, err)
	}
	segments := testenv.Must(segment.NewHost(segment.PeersWrite))(t)
	s.lent = array(memmgr.NewPool(segments))
	var err error
	s.server, err = share.Listen(t.Context(), "", share.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.server.Close()) })
	require.NoError(t, s.server.Publish(t.Context(), "lent", s.lent))
	s.peer, err = share.Dial(t.Context(), s.server.Address(), share.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.peer.Close()) })
	s.view = dlpack.View{
		Data: unsafe.Pointer(&s.slice[0]), Device: dlpack.CPU,
		DataType: usmarray.Float32, Shape: []int64{4, 6},
	}
	pinned := new(runtime.Pinner)
	pinned.Pin(&s.slice[0])
	t.Cleanup(pinned.Unpin)
	for expr, to := range map[string]**python.Object{
		"__import__('numpy').zeros((4, 6), 'float32')": &s.numpy, "bytearray(96)": &s.bytes,
	} {
		*to, err = py.Eval(expr, nil)
		require.NoError(t, err)
		t.Cleanup((*to).Release)
	}
	return s
}
