//go:build cgo && linux

package guard_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr/segment/internal/guard"
	"github.com/usmbridge/usmbridge/memmgr/segment/internal/guard/guardtest"
)

// roles are the functions of this binary as a second process, which may end by a signal.
var roles = map[string]func(){
	"panics by SIGBUS": func() {
		_ = guarded(&testing.T{}, mapped(&testing.T{}, 1)) // the handler is there
		memory := mapped(&testing.T{}, 1)
		cut(&testing.T{}, memory, 0)
		memory.bytes[0]++
	},
	"dies by SIGBUS in C": func() {
		_ = guarded(&testing.T{}, mapped(&testing.T{}, 1))
		memory := mapped(&testing.T{}, 1)
		cut(&testing.T{}, memory, 0)
		_, _ = guardtest.SumOnThread(memory.at(), 1, false)
	},
	"panics by nil": func() {
		_ = guarded(&testing.T{}, mapped(&testing.T{}, 1))
		var p *int
		*p++
	},
	"cutter": func() {
		check(syscall.Ftruncate(3, int64(page)) == nil, "truncation")
	},
	"chaining": func() { underHandler(guardtest.Chaining) },
	"leaving":  func() { underHandler(guardtest.Leaving) },
}

const roleEnv = "USMBRIDGE_TEST_GUARD_ROLE"

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		roles[name]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func second(role string) (stderr string, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	var b bytes.Buffer
	cmd.Stderr = &b
	err = cmd.Run()
	return b.String(), err
}

var page = os.Getpagesize()

// memory is a mapping of a file that can be truncated.
type memory struct {
	bytes []byte
	file  *os.File
}

func (m memory) at() unsafe.Pointer { return unsafe.Pointer(&m.bytes[0]) }

// mapped maps pages of a file, all bytes 1.
func mapped(t testing.TB, pages int) memory {
	f, err := os.CreateTemp("/dev/shm", "usmbridge-test-")
	require.NoError(t, err)
	require.NoError(t, os.Remove(f.Name()))
	_, err = f.Write(bytes.Repeat([]byte{1}, pages*page))
	require.NoError(t, err)
	b := testenv.Must(syscall.Mmap(int(f.Fd()), 0, pages*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED))(t)
	t.Cleanup(func() {
		require.NoError(t, syscall.Munmap(b))
		require.NoError(t, f.Close())
	})
	return memory{b, f}
}

func cut(t testing.TB, m memory, pages int) { require.NoError(t, m.file.Truncate(int64(pages*page))) }

func guarded(t testing.TB, m memory) guard.Range {
	r := testenv.Must(guard.Add(uintptr(m.at()), uintptr(len(m.bytes)), true))(t)
	t.Cleanup(r.Remove)
	return r
}

// sums are the ways to read memory: each adds all bytes.
var sums = map[string]func(m memory) (sum uint64, err error){
	"Go": func(m memory) (sum uint64, err error) {
		for _, b := range m.bytes {
			sum += uint64(b)
		}
		return sum, nil
	},
	"Go, backwards": func(m memory) (sum uint64, err error) {
		for i := range m.bytes {
			sum += uint64(m.bytes[len(m.bytes)-1-i])
		}
		return sum, nil
	},
	"a cgo call": func(m memory) (uint64, error) { return guardtest.Sum(m.at(), len(m.bytes)), nil },
	"a thread":   func(m memory) (uint64, error) { return guardtest.SumOnThread(m.at(), len(m.bytes), false) },
	"a thread with a signal stack": func(m memory) (uint64, error) {
		return guardtest.SumOnThread(m.at(), len(m.bytes), true)
	},
}

// An access to a truncated part reads zeros; the rest is unchanged.
func TestTruncation(t *testing.T) {
	for name, read := range sums {
		sum := func(m memory) uint64 { return testenv.Must(read(m))(t) }
		t.Run(name, func(t *testing.T) {
			m := mapped(t, 8)
			r := guarded(t, m)
			require.EqualValues(t, 8*page, sum(m))
			require.False(t, r.Lost())
			cut(t, m, 3)
			require.EqualValues(t, 3*page, sum(m))
			require.True(t, r.Lost())
			m.bytes[len(m.bytes)-1] = 5 // pages of this process now
			require.EqualValues(t, 3*page+5, sum(m))
		})
	}
}

// Another process truncates the file repeatedly while it is read.
func TestCutOffMeanwhile(t *testing.T) {
	for name, sum := range sums {
		t.Run(name, func(t *testing.T) {
			m := mapped(t, 64)
			r := guarded(t, m)
			once, over := make(chan struct{}), make(chan uint64)
			go func() {
				for n := 0; ; n++ {
					lost := r.Lost()
					got, err := sum(m)
					if err != nil {
						t.Error(err)
					}
					if n == 0 {
						close(once)
					}
					if lost {
						over <- got
						return
					}
				}
			}()
			<-once
			cutter := exec.Command(os.Args[0])
			cutter.Env = append(os.Environ(), roleEnv+"=cutter")
			cutter.ExtraFiles = []*os.File{m.file}
			require.NoError(t, cutter.Run())
			select {
			case got := <-over:
				require.EqualValues(t, page, got)
			case <-time.After(time.Minute):
				t.Fatal("the reader did not notice")
			}
		})
	}
}

// Many accesses at once, on all kinds of threads, while ranges are added and removed.
func TestManyAtOnce(t *testing.T) {
	var group sync.WaitGroup
	for name, sum := range sums {
		group.Go(func() {
			for range 10 {
				m := mapped(t, 4)
				r := guarded(t, m)
				cut(t, m, 1)
				if sum, err := sum(m); sum != uint64(page) || !r.Lost() {
					t.Errorf("%s: %d of %d, lost %v, %v", name, sum, page, r.Lost(), err)
				}
			}
		})
	}
	group.Wait()
}

// recovered returns the panic of a fault that Go reports.
func recovered(f func()) (what any) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { what = recover() }()
	f()
	return nil
}

// Faults outside of the ranges are handled by Go as before: a panic that can be recovered, repeatedly.
func TestOtherFaultsReachGo(t *testing.T) {
	r := guarded(t, mapped(t, 1))
	var fault runtime.Error
	for range 3 {
		m := mapped(t, 2)
		cut(t, m, 1)
		require.EqualValues(t, 1, m.bytes[0])
		for range 3 {
			err, ok := recovered(func() { m.bytes[page]++ }).(error)
			require.True(t, ok)
			require.ErrorAs(t, err, &fault)
			err, ok = recovered(func() { var p *int; *p++ }).(error)
			require.True(t, ok)
			require.ErrorAs(t, err, &fault)
			require.ErrorContains(t, err, "nil pointer")
		}
	}
	require.False(t, r.Lost())
}

// A range that was removed is not guarded any more.
func TestRemoved(t *testing.T) {
	m := mapped(t, 1)
	r := testenv.Must(guard.Add(uintptr(m.at()), uintptr(page), true))(t)
	r.Remove()
	cut(t, m, 0)
	require.NotNil(t, recovered(func() { m.bytes[0]++ }))
}

// A fault in unguarded memory ends the process, as without the guard.
func TestUnguardedFaultsEndTheProcess(t *testing.T) {
	stderr, err := second("panics by SIGBUS")
	require.Error(t, err)
	require.Contains(t, stderr, "unexpected fault address")
	require.Contains(t, stderr, "[signal SIGBUS")
	stderr, err = second("panics by nil")
	require.Error(t, err)
	require.Contains(t, stderr, "panic: runtime error: invalid memory address or nil pointer dereference")
	stderr, err = second("dies by SIGBUS in C")
	require.Error(t, err)
	var end *exec.ExitError
	require.ErrorAs(t, err, &end)
	status, _ := end.Sys().(syscall.WaitStatus)
	require.True(t, status.Signaled() || strings.Contains(stderr, "SIGBUS") || strings.Contains(stderr, "AddressSanitizer: BUS"), "%v: %s", err, stderr)
}

// check ends a second process if something is wrong.
func check(ok bool, what string) {
	if !ok {
		println("wrong:", what)
		os.Exit(1)
	}
}

// underHandler installs a driver's handler over the guard's, and Keep detects it.
func underHandler(h guardtest.Handler) {
	t := &testing.T{}
	m := mapped(t, 4)
	r := guarded(t, m)
	check(h.Install() == nil, "install")
	check(guard.Keep() == nil, "keep")
	cut(t, m, 1)
	sum, err := guardtest.SumOnThread(m.at(), len(m.bytes), false)
	check(err == nil && sum == uint64(page) && r.Lost(), "guarded")
	check(h.Calls() == 0, "the other handler was called for a fault of ours")
	other := mapped(t, 1)
	cut(t, other, 0)
	for range 3 { // the replaced handlers, Go's last, are called on every fault
		calls := h.Calls()
		check(recovered(func() { other.bytes[0]++ }) != nil, "Go's panic")
		check(h.Calls() > calls, "the other handler was not called")
		check(guard.Keep() == nil, "keep")
	}
	m = mapped(t, 4)
	r = guarded(t, m)
	cut(t, m, 2)
	check(guardtest.Sum(m.at(), len(m.bytes)) == uint64(2*page) && r.Lost(), "guarded afterwards")
}

// A driver's handler that is installed later does not disable the guard, whether it calls the previous one or removes
// itself. Go's handler is still called.
func TestHandlersOfDrivers(t *testing.T) {
	for _, role := range []string{"chaining", "leaving"} {
		stderr, err := second(role)
		require.NoError(t, err, "%s: %s", role, stderr)
	}
}

// The number of ranges is as documented.
func TestFull(t *testing.T) {
	const most = 4096
	m := mapped(t, 1)
	var all []guard.Range
	for {
		r, err := guard.Add(uintptr(m.at()), uintptr(page), true)
		if errors.Is(err, guard.ErrFull) {
			break
		}
		require.NoError(t, err)
		all = append(all, r)
		require.LessOrEqual(t, len(all), most)
	}
	require.Len(t, all, most)
	for _, r := range all {
		r.Remove()
	}
	r := guarded(t, m)
	require.False(t, r.Lost())
}
