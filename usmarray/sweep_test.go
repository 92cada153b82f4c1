package usmarray

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// The script below uses all operations of this package and its dependencies on
// the SYCL library. The tests run it repeatedly: each function of the library
// fails in each call of the script, one at a time, and each submitted
// operation fails after it was accepted. Each time a returned error has a type that
// a program can test; no object is left in the library, the memory
// manager or this module; and the script succeeds afterwards.

// scenes are the parts of the script. Each releases its objects; after an error of one, the next ones still run.
var scenes = []struct {
	name string
	play func(s *script) error
}{
	{"fill and copy", playCopies},
	{"DLPack", playDLPack},
	{"dictionaries", playDictionaries},
	{"new memory by syclobj", playNewOn},
	{"a pool with work in flight", playPool},
	{"tiles and contexts", playTiles},
}

// script is the shared state of the scenes.
type script struct {
	fake *sycltest.Fake
	rt   *syclobj.Runtime
	end  []func() error // run backwards
}

// stop is the panic that ends a scene with an error.
type stop struct{ err error }

func check(err error) {
	if err != nil {
		panic(stop{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// run plays a scene to its end or its first error.
func (s *script) run(play func(s *script) error) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stop:
			err = v.err
		default:
			panic(v)
		}
	}()
	return play(s)
}

// later registers f for the end of the scene.
func (s *script) later(f func() error) { s.end = append(s.end, f) }

// close releases the objects of a scene.
func (s *script) close() error {
	var all []error
	for i := len(s.end) - 1; i >= 0; i-- {
		all = append(all, s.end[i]())
	}
	s.end = nil
	return errors.Join(all...)
}

// array releases an array at the end of the scene.
func (s *script) array(a *Array, err error) *Array {
	check(err)
	s.later(func() error { a.Release(); return nil })
	return a
}

// queue creates a queue that is closed at the end of the scene.
func (s *script) queue(ctx *syclobj.Context, d *syclobj.Device, p syclobj.QueueProperty) *syclobj.Queue {
	q := must(s.rt.NewQueue(ctx, d, p))
	s.later(q.Close)
	return q
}

// gpu returns a device and an in-order queue, which is closed at the end.
func (s *script) gpu(filter string) (*syclobj.Device, *syclobj.Queue) {
	d := must(s.rt.Device(filter))
	return d, s.queue(nil, d, syclobj.InOrder)
}

// usm returns a resource that is closed at the end.
func (s *script) usm(q *syclobj.Queue, k syclobj.USMKind) memmgr.Resource {
	r := memmgr.USM(q, k)
	if c, ok := r.(interface{ Close() error }); ok {
		s.later(c.Close)
	}
	return r
}

// perform runs the whole script and returns its errors.
func perform(fake *sycltest.Fake) error {
	rt, err := syclobj.Open(syclobj.RequireSYCL())
	if err != nil {
		return err
	}
	var all []error
	for _, scene := range scenes {
		s := &script{fake: fake, rt: rt}
		if err := s.run(scene.play); err != nil {
			all = append(all, fmt.Errorf("%s: %w", scene.name, err))
		}
		fake.Hold(false)
		fake.ReleaseAll()
		if err := s.close(); err != nil {
			all = append(all, fmt.Errorf("%s, closing: %w", scene.name, err))
		}
	}
	memmgr.Flush()
	all = append(all, memmgr.CloseDefaults(), rt.Close())
	return errors.Join(all...)
}

func playCopies(s *script) error {
	_, q := s.gpu("level_zero:gpu:1")
	for _, k := range usmKinds {
		a := s.array(Zeros(s.usm(q, k), Int32, []int{4, 6}))
		check(a.Fill(7))
		column := s.array(a.Index(All, IndexRange(0, 6).By(2)))
		check(column.Fill(9))
		for _, dt := range []DataType{Int8, Int16, Float64, Complex128} {
			w := s.array(Zeros(s.usm(q, k), dt, []int{300}))
			check(w.Fill(1))
		}
		b := s.array(a.Copy(memmgr.Host()))
		c := s.array(b.ToDevice(s.usm(q, syclobj.USMDevice)))
		check(c.CopyFrom(a))
		wide := s.array(c.AsType(s.usm(q, k), Float64))
		got := must(ToSlice[float64](wide))
		if !slices.Equal(got[:6], []float64{9, 7, 9, 7, 9, 7}) {
			return fmt.Errorf("wrong elements without an error: %v", got[:6])
		}
		check(c.Synchronize(context.Background()))
	}
	return nil
}

func playDLPack(s *script) error {
	gpu, q := s.gpu("level_zero:gpu:0")
	consumer := s.queue(nil, gpu, syclobj.OutOfOrder)
	a := s.array(Arange[int32](s.usm(q, syclobj.USMShared), 0, 1, 12))
	for _, options := range []ExportOptions{
		{}, {OnQueue: consumer}, {NoSync: true}, {Copy: CopyAlways}, {Device: on(dlpack.CPU)},
	} {
		check(a.Fill(3))
		t := must(a.DLPackWith(options))
		b, err := FromDLPack(s.rt, t)
		if err != nil {
			t.Release()
			return err
		}
		b.Release()
	}
	return nil
}

func playDictionaries(s *script) error {
	_, q := s.gpu("level_zero:gpu:1")
	a := s.array(Arange[int32](s.usm(q, syclobj.USMDevice), 0, 1, 12))
	for _, form := range []syclForm{defaultForm, filterForm, contextForm, queueForm} {
		d := must(interfaceAs(a, form))
		b := must(FromUSMInterface(s.rt, &d, nil))
		b.Release()
	}
	return nil
}

func playNewOn(s *script) error {
	gpu := must(s.rt.Device("level_zero:gpu:0"))
	both := must(s.rt.NewContext(s.rt.RootDevices()[1], s.rt.RootDevices()[2]))
	s.later(both.Close)
	q := s.queue(both, gpu, syclobj.OutOfOrder|syclobj.Profiling)
	for _, obj := range []SyclObj{
		{Filter: "level_zero:gpu:1"}, {Context: both}, {Queue: q},
	} {
		a := must(newOn(s.rt, obj, syclobj.USMShared, Float32, []int{8}))
		err := a.Fill(1)
		a.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// playPool frees memory with pending work, which the test delays, so that the pool must wait and return
// memory.
func playPool(s *script) error {
	gpu, q := s.gpu("level_zero:gpu:0")
	other := s.queue(nil, gpu, syclobj.OutOfOrder)
	pool := memmgr.NewPool(s.usm(q, syclobj.USMDevice), memmgr.WithLimit(8<<20))
	s.later(pool.Close)
	s.fake.Hold(true)
	// If a barrier fails, the host waits for the work, which the test delays.
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-done:
		case <-time.After(20 * time.Millisecond):
			s.fake.Hold(false)
			s.fake.ReleaseAll()
		}
	}()
	var first error
	for i := range 6 {
		a, err := New(pool, Uint8, []int{100000 * (i + 1)})
		if err != nil {
			first = errors.Join(first, err)
			continue
		}
		if err := a.Fill(i); err != nil {
			first = errors.Join(first, err)
		}
		if i%2 == 1 {
			a.Buffer().UsedOn(other)
		}
		a.Release()
	}
	s.fake.Hold(false)
	s.fake.ReleaseAll()
	a, err := New(pool, Uint8, []int{7 << 20}) // needs the freed memory
	if err != nil {
		return errors.Join(first, err)
	}
	a.Release()
	pool.Trim(0)
	return first
}

func playTiles(s *script) error {
	gpu := must(s.rt.Device("level_zero:gpu:1"))
	tiles := must(gpu.SubDevices(syclobj.Partition{Domain: syclobj.AffinityNextPartitionable}))
	for _, tile := range tiles {
		s.later(tile.Close)
	}
	q := s.queue(gpu.DefaultContext(), tiles[0], syclobj.InOrder)
	own := must(s.rt.NewContext(gpu))
	s.later(own.Close)
	elsewhere := s.queue(own, gpu, syclobj.InOrder)
	a := s.array(Arange[int16](s.usm(q, syclobj.USMDevice), 0, 1, 30))
	b := s.array(a.Copy(s.usm(elsewhere, syclobj.USMDevice)))
	t, err := b.DLPackWith(ExportOptions{Copy: CopyAlways}) // copies to the default context
	if err != nil {
		return err
	}
	t.Release()
	return nil
}

// functionsOf lists the library's functions.
func functionsOf(t *testing.T, path string) (names []string) {
	t.Helper()
	f := testenv.Opened(elf.Open(path))(t)
	for _, s := range testenv.Must(f.DynamicSymbols())(t) {
		// DPCTLUSM_GetPointerType cannot fail: it returns the kind of memory. A block that it
		// reports as unknown is not passed to the library's free, which would crash. It
		// stays allocated, so later checks for leaks would fail.
		if strings.HasPrefix(s.Name, "DPCTL") && s.Section != elf.SHN_UNDEF && s.Name != "DPCTLUSM_GetPointerType" {
			names = append(names, s.Name)
		}
	}
	require.Greater(t, len(names), 60)
	return names
}

// requireTyped asserts that every error has one of the documented types.
func requireTyped(t *testing.T, err error, where string) {
	t.Helper()
	var mine *OpError
	var sycl *syclobj.OpError
	var memory *memmgr.OutOfMemoryError
	require.True(t, errors.As(err, &mine) || errors.As(err, &sycl) || errors.As(err, &memory), "%s: %T: %v", where, err, err)
}

// requireClean asserts that nothing is left. Memory whose last barrier was refused is freed at the pools'
// next check.
func requireClean(t *testing.T, fake *sycltest.Fake, where string) {
	t.Helper()
	left := func() string {
		memmgr.Flush()
		buffers, bytes := memmgr.LiveCount()
		if library, ours := fake.Live(), syclobj.LiveObjects(); library != (sycltest.Objects{}) || ours != (syclobj.Live{}) || buffers != 0 {
			return fmt.Sprintf("in the library %+v; SYCL objects %v; %d buffers of %d bytes", library, ours, buffers, bytes)
		}
		return ""
	}
	if left() != "" {
		require.Eventually(t, func() bool { return left() == "" }, time.Minute, 10*time.Millisecond, "%s: %s", where, left())
	}
}

// submissions counts the submissions to the library.
func submissions(fake *sycltest.Fake) (n int) {
	for _, f := range []string{
		"Memcpy", "MemcpyWithEvents", "Memset", "SubmitBarrierForEvents", "Prefetch",
		"Fill8", "Fill16", "Fill32", "Fill64", "Fill128",
	} {
		n += fake.Calls("DPCTLQueue_" + f)
	}
	return n
}

func TestSweepEveryCallFails(t *testing.T) {
	sycltest.Child(t, sycltest.CPUFirst, func(fake *sycltest.Fake) {
		functions := functionsOf(t, os.Getenv(syclobj.EnvLibrary))
		require.NoError(t, perform(fake)) // the first run does one-time work
		before := map[string]int{}
		for _, f := range functions {
			before[f] = fake.Calls(f)
		}
		require.NoError(t, perform(fake))
		requireClean(t, fake, "without a fault")
		calls := map[string]int{}
		for _, f := range functions {
			calls[f] = fake.Calls(f) - before[f]
		}
		runs, failed := 0, 0
		var never []string
		for _, function := range functions {
			if calls[function] == 0 {
				never = append(never, function)
			}
			for n := 1; n <= calls[function]; n++ {
				where := fmt.Sprintf("%s, call %d of %d", function, n, calls[function])
				fake.Fail(function, n)
				err := perform(fake)
				fake.Fail(function, 0)
				runs++
				if err != nil {
					failed++
					requireTyped(t, err, where)
				}
				requireClean(t, fake, where)
			}
			require.NoError(t, perform(fake), "after the faults of %s", function)
		}
		requireClean(t, fake, "at the end")
		t.Logf("%d faults, %d of them seen by the caller; cannot fail or are not used: %s", runs, failed, strings.Join(never, " "))
		require.Greater(t, runs, 400)
		require.Greater(t, failed, runs/4)
	})
}

func TestSweepEveryWorkFails(t *testing.T) {
	sycltest.Child(t, sycltest.CPUFirst, func(fake *sycltest.Fake) {
		before := submissions(fake)
		require.NoError(t, perform(fake))
		total, failed := submissions(fake)-before, 0
		for n := 1; n <= total; n++ {
			where := fmt.Sprintf("submission %d of %d", n, total)
			fake.AsyncError(n, -5)
			err := perform(fake)
			fake.AsyncError(0, 0)
			if err != nil {
				failed++
				requireTyped(t, err, where)
			}
			requireClean(t, fake, where)
		}
		require.NoError(t, perform(fake))
		t.Logf("%d submissions, %d failures of theirs seen by the caller", total, failed)
		require.Greater(t, total, 30)
		require.Positive(t, failed)
	})
}
