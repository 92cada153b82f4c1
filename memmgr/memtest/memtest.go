// Package memtest tests implementations of [memmgr.Resource] and code that allocates from one.
//
//	func TestMain(m *testing.M) { memtest.Main(m) }
//
//	func TestResource(t *testing.T) {
//		memtest.Run(t, func(testing.TB) memmgr.Resource { return newResource() }, memtest.Options{})
//	}
//
// [Run] is a suite that every resource must pass. [Main] is a TestMain that fails if the
// tests leave memory referenced. [Simulated] is a device without memory, whose work ends and whose
// allocations fail when the test requests it.
package memtest

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/cells"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/report"
)

// Options limit the suite for a resource.
type Options struct {
	// AddressOnly means that the addresses have no memory.
	AddressOnly bool
	// Largest is the largest block that the suite requests, in bytes; 0 means 8 MiB.
	Largest uintptr
	// MaxAlign is the largest alignment that the suite requests, in bytes; 0 means 64 KiB.
	MaxAlign uintptr
}

// Run runs the suite. newResource makes a new resource for each part and registers its clean-up with
// t.
func Run(t *testing.T, newResource func(t testing.TB) memmgr.Resource, options Options) {
	options.Largest = cmp.Or(options.Largest, 8<<20)
	options.MaxAlign = cmp.Or(options.MaxAlign, 64<<10)
	for _, part := range []struct {
		name string
		test func(*testing.T, memmgr.Resource, Options)
	}{
		{"Sizes", testSizes},
		{"Alignment", testAlignment},
		{"Disjoint", testDisjoint},
		{"Memory", testMemory},
		{"Facts", testFacts},
		{"Failures", testFailures},
		{"DoubleRelease", testDoubleRelease},
		{"BlockByBlock", testBlocks},
		{"OtherGoroutine", testOtherGoroutine},
		{"DropInC", testDropInC},
		{"Concurrent", testConcurrent},
	} {
		t.Run(part.name, func(t *testing.T) {
			memmgr.Flush()
			before, _ := memmgr.LiveCount()
			r := newResource(t)
			part.test(t, r, options)
			memmgr.Flush()
			after, _ := memmgr.LiveCount()
			require.Equal(t, before, after, "memory is still referenced after the test")
			if u, ok := memmgr.As[interface{ InUse() (blocks, bytes int64) }](r); ok {
				if _, pooled := memmgr.As[*memmgr.Pool](r); !pooled {
					blocks, bytes := u.InUse()
					require.Zero(t, blocks, "blocks in use after the test")
					require.Zero(t, bytes, "bytes in use after the test")
				}
			}
		})
	}
}

func sizes(largest uintptr) []uintptr {
	all := []uintptr{0, 1, 2, 7, 63, 64, 65, 255, 256, 257, 511, 512, 513, 4095, 4096, 4097, 12345,
		65535, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1, 2 << 20, 2<<20 + 1, 3*1<<20 + 5, largest}
	return slices.DeleteFunc(all, func(n uintptr) bool { return n > largest })
}

func allocate(t testing.TB, r memmgr.Resource, size, align uintptr) memmgr.Buffer {
	t.Helper()
	b, err := memmgr.New(r, memmgr.Request{Size: size, Align: align, Tag: "memtest"})
	require.NoError(t, err, "%d bytes aligned to %d", size, align)
	return b
}

func testSizes(t *testing.T, r memmgr.Resource, o Options) {
	for _, size := range sizes(o.Largest) {
		b := allocate(t, r, size, 0)
		require.NotZero(t, b.Address(), "size %d", size)
		require.GreaterOrEqual(t, b.Size(), uint64(size))
		require.EqualValues(t, size, b.Requested())
		require.Zero(t, b.Address()%memmgr.DefaultAlign, "size %d at %#x", size, b.Address())
		b.Release()
	}
}

func testAlignment(t *testing.T, r memmgr.Resource, o Options) {
	for align := uintptr(1); align <= o.MaxAlign; align *= 2 {
		var held []memmgr.Buffer
		for _, size := range []uintptr{1, 100, 4097, 100000} {
			b := allocate(t, r, size, align)
			require.Zero(t, b.Address()%align, "%d bytes at %#x aligned to %d", size, b.Address(), align)
			held = append(held, b)
		}
		for _, b := range held {
			b.Release()
		}
	}
}

type interval struct{ lo, hi uintptr }

func testDisjoint(t *testing.T, r memmgr.Resource, o Options) {
	rng := rand.New(rand.NewPCG(1, 2))
	var held []memmgr.Buffer
	for range 400 {
		if len(held) > 0 && rng.IntN(3) == 0 {
			k := rng.IntN(len(held))
			held[k].Release()
			held[k] = held[len(held)-1]
			held = held[:len(held)-1]
		}
		held = append(held, allocate(t, r, uintptr(rng.IntN(int(min(o.Largest, 300000)))), 1<<rng.IntN(13)))
	}
	spans := make([]interval, 0, len(held))
	for _, b := range held {
		spans = append(spans, interval{b.Address(), b.Address() + max(uintptr(b.Requested()), 1)})
	}
	slices.SortFunc(spans, func(a, b interval) int { return cmp.Compare(a.lo, b.lo) })
	for i := 1; i < len(spans); i++ {
		require.LessOrEqual(t, spans[i-1].hi, spans[i].lo, "two live buffers share memory")
	}
	for _, b := range held {
		b.Release()
	}
}

// pattern returns n bytes that depend on seed.
func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)*7 + seed
	}
	return p
}

func testMemory(t *testing.T, r memmgr.Resource, o Options) {
	if o.AddressOnly {
		return
	}
	var held []memmgr.Buffer
	for i, size := range sizes(min(o.Largest, 2<<20)) {
		b := allocate(t, r, size, 0)
		require.NoError(t, memmgr.CopyIn(b, 0, pattern(int(size), byte(i))))
		held = append(held, b)
	}
	for i, b := range held {
		got := make([]byte, b.Requested())
		require.NoError(t, memmgr.CopyOut(b, 0, got))
		require.Equal(t, pattern(len(got), byte(i)), got, "buffer %d changed", i)
		if b.HostReadable() {
			bytes, err := b.Bytes()
			require.NoError(t, err)
			require.Equal(t, uintptr(b.Data()), uintptr(unsafe.Pointer(unsafe.SliceData(bytes))))
		}
	}
	require.ErrorIs(t, memmgr.CopyIn(held[2], 1<<20, []byte{1}), memmgr.ErrRange)
	require.ErrorIs(t, memmgr.CopyOut(held[2], -1, make([]byte, 1)), memmgr.ErrRange)
	for _, b := range held {
		b.Release()
	}
}

func testFacts(t *testing.T, r memmgr.Resource, o Options) {
	b := allocate(t, r, 1000, 0)
	require.Same(t, r.Place(), b.Place())
	require.Equal(t, r.Place().HostReadable() && !o.AddressOnly, b.HostReadable())
	require.Equal(t, "memtest", b.Tag())
	require.Equal(t, 1, b.Count())
	require.False(t, b.Pending())
	require.NoError(t, b.Wait())
	require.False(t, b.ReadOnly())
	c := cells.Buffer(cells.Of(b))
	require.Equal(t, b, c)
	c.Retain()
	require.Equal(t, 2, b.Count())
	c.Release()
	require.True(t, b.Valid())
	b.Release()
	require.False(t, b.Valid())
}

func testFailures(t *testing.T, r memmgr.Resource, o Options) {
	for _, align := range []uintptr{3, 24, 257} {
		_, err := memmgr.New(r, memmgr.Request{Size: 16, Align: align})
		require.ErrorIs(t, err, memmgr.ErrRequest, "alignment %d", align)
	}
	sizes := []uintptr{^uintptr(0), ^uintptr(0) >> 1}
	if bits.UintSize == 64 { // a valid size that no machine has memory for
		sizes = append(sizes, ^uintptr(0)>>4)
	}
	for _, size := range sizes {
		_, err := memmgr.New(r, memmgr.Request{Size: size})
		require.Error(t, err, "size %d", size)
		typed := errors.Is(err, memmgr.ErrRequest) || errors.Is(err, memmgr.ErrOutOfMemory)
		require.True(t, typed, "an untyped error for size %d: %v", size, err)
		require.True(t, strings.Contains(err.Error(), "byte") || strings.Contains(err.Error(), "iB"), err.Error())
	}
	// The resource still works.
	allocate(t, r, 1, 0).Release()
}

func testDoubleRelease(t *testing.T, r memmgr.Resource, _ Options) {
	b := allocate(t, r, 10, 0)
	b.Release()
	b.Release()
	other := allocate(t, r, 10, 0) // from a pool on the same owner
	b.Release()
	require.Equal(t, 1, other.Count(), "a release too many reached other memory")
	other.Release()
	for name, use := range map[string]func(){
		"Retain": func() { b.Retain() },
		"Data":   func() { b.Data() },
		"Wait":   func() { _ = b.Wait() },
	} {
		func() {
			defer func() {
				err, ok := recover().(*memmgr.UseError)
				require.True(t, ok, "%s after release did not panic as it should", name)
				require.ErrorIs(t, err, memmgr.ErrReleased)
				require.Contains(t, err.Error(), name)
			}()
			use()
		}()
	}
}

func testBlocks(t *testing.T, r memmgr.Resource, o Options) {
	var blocks []memmgr.Block
	for _, size := range sizes(min(o.Largest, 1<<20)) {
		b, err := r.Allocate(memmgr.Request{Size: size})
		require.NoError(t, err)
		require.GreaterOrEqual(t, b.Size, size)
		require.Equal(t, size, b.Requested)
		require.NotZero(t, b.Address)
		blocks = append(blocks, b)
	}
	for _, b := range blocks {
		r.Free(b)
	}
}

func testOtherGoroutine(t *testing.T, r memmgr.Resource, _ Options) {
	buffers := make(chan memmgr.Buffer, 64)
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := range buffers {
			b.Release()
		}
	})
	for i := range 2000 {
		buffers <- allocate(t, r, uintptr(i%5000), 0)
	}
	close(buffers)
	wg.Wait()
}

func testConcurrent(t *testing.T, r memmgr.Resource, o Options) {
	const goroutines, rounds = 4, 400
	failures := make(chan error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() { failures <- churn(r, o, uint64(g), rounds) })
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
}

// churn holds a few buffers, each filled with its own pattern, and checks the pattern before it
// releases a buffer.
func churn(r memmgr.Resource, o Options, seed uint64, rounds int) error {
	rng := rand.New(rand.NewPCG(seed, 9))
	var held [16]memmgr.Buffer
	var marks [16]byte
	check := func(k int) error {
		if o.AddressOnly || !held[k].Valid() {
			return nil
		}
		got := make([]byte, min(held[k].Requested(), 64))
		if err := memmgr.CopyOut(held[k], 0, got); err != nil {
			return err
		}
		if !slices.Equal(got, pattern(len(got), marks[k])) {
			return fmt.Errorf("goroutine %d: buffer %d of %d bytes changed", seed, k, held[k].Requested())
		}
		return nil
	}
	for i := range rounds {
		k := rng.IntN(len(held))
		if held[k].Valid() {
			if err := check(k); err != nil {
				return err
			}
			held[k].Release()
		}
		b, err := memmgr.New(r, memmgr.Request{Size: 1 + uintptr(rng.IntN(1<<rng.IntN(17)))})
		if err != nil {
			return err
		}
		held[k], marks[k] = b, byte(i)
		if !o.AddressOnly {
			if err := memmgr.CopyIn(b, 0, pattern(int(min(b.Requested(), 64)), marks[k])); err != nil {
				return err
			}
		}
	}
	for k := range held {
		if err := check(k); err != nil {
			return err
		}
		if held[k].Valid() {
			held[k].Release()
		}
	}
	return nil
}

// Main runs the tests of a package and exits. After the last test it calls the functions in after, such as the
// one that closes a runtime that the tests share, and fails if one of them fails. It also fails if memory
// is still referenced then, and prints the stacks of its allocations.
func Main(m *testing.M, after ...func() error) {
	memmgr.RecordStacks(16)
	code := m.Run()
	memmgr.Flush()
	for _, f := range after {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, "memtest:", err)
			code = 1
		}
	}
	if n, err := report.WriteLeaks(os.Stderr); code == 0 && (n != 0 || err != nil) {
		fmt.Fprintf(os.Stderr, "memtest: %d pieces of memory are still referenced after the tests\n", n)
		code = 1
	}
	os.Exit(code)
}
