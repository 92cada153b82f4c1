package memmgr_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

// tagged is a buffer with random contents, and a copy of them.
type tagged struct {
	memmgr.Buffer
	data []byte
}

func newTagged(t testing.TB, p memmgr.Resource, rng *rand.Rand, tag string, size int) tagged {
	t.Helper()
	b, err := memmgr.New(p, memmgr.Request{Size: uintptr(size), Tag: tag})
	require.NoError(t, err)
	x := tagged{b, make([]byte, size)}
	for i := 0; i < size; i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(x.data[i:], word[:])
	}
	require.NoError(t, memmgr.CopyIn(b, 0, x.data))
	return x
}

func (x *tagged) require(t testing.TB) {
	t.Helper()
	got := make([]byte, len(x.data))
	require.NoError(t, memmgr.CopyOut(x.Buffer, 0, got))
	require.True(t, bytes.Equal(x.data, got), "contents changed")
}

// mixture allocates blocks of all sizes, of two tags and without a tag, next to each other.
func mixture(t testing.TB, p memmgr.Resource, n int) (sleepers, others []tagged) {
	rng := rand.New(rand.NewPCG(5, uint64(n)))
	for range n {
		size := 1 + rng.IntN(100<<10)
		switch rng.IntN(4) {
		case 0:
			others = append(others, newTagged(t, p, rng, "other", size))
		case 1:
			others = append(others, newTagged(t, p, rng, "", size))
		default:
			sleepers = append(sleepers, newTagged(t, p, rng, "kv", size))
		}
	}
	sleepers = append(sleepers, newTagged(t, p, rng, "kv", 20<<20), newTagged(t, p, rng, "kv", 3<<20))
	return sleepers, others
}

func releaseTagged(all ...[]tagged) {
	for _, some := range all {
		for _, x := range some {
			x.Release()
		}
	}
}

func residentOfAll(all []tagged) (n uintptr) {
	for _, x := range all {
		from := roundTo(x.Address(), 4096)
		if to := (x.Address() + uintptr(x.Size())) &^ 4095; to > from {
			n += memmgr.ResidentBytes(from, to-from)
		}
	}
	return n
}

func roundTo(n, unit uintptr) uintptr { return (n + unit - 1) / unit * unit }

func TestSleepAndWake(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "contents"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	for name, options := range map[string]memmgr.SleepOptions{
		"discarded":        {},
		"to a file":        {To: file},
		"into a resource":  {Into: memmgr.Host()},
		"with a context":   {To: file, Context: context.Background()},
		"into another one": {Into: memmgr.NewLimit(memmgr.Host(), 100<<20), Context: context.Background()},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := onPages(t, memmgr.WithDecay(0))
			sleepers, others := mixture(t, p, 500)
			before := resident(p)
			addresses := make([]uintptr, len(sleepers))
			for i, x := range sleepers {
				addresses[i] = x.Address()
			}
			freed, err := p.Sleep("kv", options)
			require.NoError(t, err)
			require.EqualValues(t, before-resident(p), freed, "other than was really freed")
			require.Greater(t, freed, uint64(30<<20))
			require.Zero(t, residentOfAll(sleepers))
			for i := range others {
				others[i].require(t)
			}
			for i, x := range sleepers {
				require.True(t, x.Asleep() && x.Valid())
				require.Equal(t, addresses[i], x.Address())
				require.Equal(t, "kv", x.Tag())
				require.Equal(t, 1, x.Count())
			}
			require.NoError(t, p.Wake("kv"))
			for i, x := range sleepers {
				require.False(t, x.Asleep())
				require.Equal(t, addresses[i], x.Address())
				if options.To != nil || options.Into != nil {
					x.require(t)
				}
			}
			for i := range others {
				others[i].require(t)
			}
			releaseTagged(sleepers, others)
		})
	}
}

func TestUseOfASleepingBuffer(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(0))
	rng := rand.New(rand.NewPCG(1, 1))
	x := newTagged(t, p, rng, "kv", 100<<10)
	defer x.Release()
	y := newTagged(t, p, rng, "", 100<<10)
	defer y.Release()
	_, err := p.Sleep("kv", memmgr.SleepOptions{Into: memmgr.Host()})
	require.NoError(t, err)
	_, bytesErr := x.Bytes()
	for _, err := range []error{
		bytesErr, memmgr.CopyIn(x.Buffer, 0, []byte{1}), memmgr.CopyOut(x.Buffer, 0, []byte{1}),
		memmgr.CopyBuffer(x.Buffer, 0, y.Buffer, 0, 10), memmgr.CopyBuffer(y.Buffer, 0, x.Buffer, 0, 10),
	} {
		var op *memmgr.OpError
		require.ErrorAs(t, err, &op)
		require.ErrorIs(t, err, memmgr.ErrAsleep)
		require.NotErrorIs(t, err, memmgr.ErrReleased)
	}
	for name, use := range map[string]func(){
		"Data": func() { x.Data() }, "Retain": func() { x.Retain() }, "Cell": func() { x.Cell() },
		"SetExported": func() { x.SetExported() }, "Wait": func() { _ = x.Wait() }, "Pending": func() { x.Pending() },
		"PendingEvent": func() { x.PendingEvent() }, "ClearPending": func() { x.ClearPending() }, "Queue": func() { x.Queue() },
	} {
		func() {
			defer func() {
				err, _ := recover().(error)
				var use *memmgr.UseError
				require.ErrorAs(t, err, &use, name)
				require.ErrorIs(t, err, memmgr.ErrAsleep)
				require.NotErrorIs(t, err, memmgr.ErrReleased)
			}()
			use()
		}()
	}
	require.False(t, x.TryRetain())
	require.Equal(t, 1, y.Count(), "a refused copy kept a reference")
	require.NoError(t, p.Wake("kv"))
	x.require(t)
	require.NoError(t, p.Wake("kv"), "nothing sleeps")
}

func TestSleepIsRefusedWhileMemoryHasOtherOwners(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(0))
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := newTagged(t, p, rng, "kv", 100<<10), newTagged(t, p, rng, "kv", 5000)
	defer releaseTagged([]tagged{x, y})
	refused := func(tag, why string) {
		t.Helper()
		var held *memmgr.HeldError
		_, err := p.Sleep(tag, memmgr.SleepOptions{})
		require.ErrorAs(t, err, &held)
		require.ErrorIs(t, err, memmgr.ErrInUse)
		require.Equal(t, 1, held.Held)
		require.Len(t, held.Holders, 1)
		require.Equal(t, tag, held.Holders[0].Tag)
		require.Contains(t, held.Reasons[0], why)
		require.ErrorContains(t, err, why)
		x.require(t)
		y.require(t)
	}
	y.Retain()
	refused("kv", "2 references")
	y.Release()

	lent, err := memmgr.New(memmgr.NewLimit(p, 1<<20), memmgr.Request{Size: 9000, Tag: "below"})
	require.NoError(t, err)
	refused("below", "another resource")
	lent.Release()

	x.Cell()
	refused("kv", "C was given it")
	x.SetExported()
	refused("kv", "Returned")
	freed, err := p.Sleep("kv", memmgr.SleepOptions{Returned: true, Into: memmgr.Host()})
	require.NoError(t, err)
	require.NotZero(t, freed)
	require.NoError(t, p.Wake("kv"))
	x.require(t)

	_, err = p.Sleep("", memmgr.SleepOptions{})
	require.ErrorIs(t, err, memmgr.ErrRequest)
	_, err = p.Sleep("kv", memmgr.SleepOptions{Into: p})
	require.ErrorIs(t, err, memmgr.ErrRequest)
	_, simulated := simulatedPool(t)
	_, err = simulated.Sleep("kv", memmgr.SleepOptions{})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// A tag that no buffer ever had is most likely a spelling mistake. Sleep and Wake report it
// instead of doing nothing.
func TestSleepAndWakeReportUnknownTags(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(0))
	b := newTagged(t, p, rand.New(rand.NewPCG(1, 1)), "kv cache", 100<<10)
	unknown := func(tag string) {
		t.Helper()
		_, sleep := p.Sleep(tag, memmgr.SleepOptions{})
		for op, err := range map[string]error{"Pool.Sleep": sleep, "Pool.Wake": p.Wake(tag)} {
			var opErr *memmgr.OpError
			require.ErrorAs(t, err, &opErr, op)
			require.Equal(t, op, opErr.Op)
			require.ErrorIs(t, err, memmgr.ErrRequest)
		}
	}
	unknown("kv-cache")
	unknown("")

	tenant := newTenant(t, p, "tenant", memmgr.TenantOptions{})
	weights, err := memmgr.New(tenant, memmgr.Request{Size: 100 << 10, Tag: "weights"})
	require.NoError(t, err)
	_, err = p.Sleep("weights", memmgr.SleepOptions{})
	require.NoError(t, err)
	require.True(t, weights.Asleep())
	weights.Release()
	require.NoError(t, tenant.Close())
	newTenant(t, p, "in its place", memmgr.TenantOptions{})
	_, err = p.Sleep("weights", memmgr.SleepOptions{})
	require.NoError(t, err, "the pool still knows the tag")

	freed, err := p.Sleep("kv cache", memmgr.SleepOptions{Into: memmgr.Host()})
	require.NoError(t, err)
	require.NotZero(t, freed)
	freed, err = p.Sleep("kv cache", memmgr.SleepOptions{})
	require.NoError(t, err, "all of it is asleep already")
	require.Zero(t, freed)
	require.NoError(t, p.Wake("kv cache"))
	require.NoError(t, p.Wake("kv cache"), "all of it is awake already")
	b.require(t)

	b.Release()
	freed, err = p.Sleep("kv cache", memmgr.SleepOptions{})
	require.NoError(t, err, "no buffer is left")
	require.Zero(t, freed)
	require.NoError(t, p.Wake("kv cache"))
}

// failingStore stores bytes until a failure that the test configures.
type failingStore struct {
	data       []byte
	room       int   // bytes after which writing fails
	short      bool  // the write that fails returns no error
	read, sync error // of ReadAt and Sync
	swap       bool  // ReadAt changes a bit
}

var errDisk = errors.New("no space left on device")

func (f *failingStore) WriteAt(b []byte, at int64) (int, error) {
	if need := int(at) + len(b); need > len(f.data) {
		f.data = append(f.data, make([]byte, need-len(f.data))...)
	}
	n := copy(f.data[at:], b[:min(len(b), max(0, f.room-int(at)))])
	if n < len(b) && !f.short {
		return n, errDisk
	}
	return n, nil
}

func (f *failingStore) ReadAt(b []byte, at int64) (int, error) {
	if f.read != nil {
		return 0, f.read
	}
	n := copy(b, f.data[min(int(at), len(f.data)):])
	if f.swap {
		b[n/2] ^= 1
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *failingStore) Sync() error { return f.sync }

func TestSavingThatFailsLeavesEverythingAwake(t *testing.T) {
	for name, store := range map[string]*failingStore{
		"full at once": {}, "full": {room: 10 << 20}, "short": {room: 10 << 20, short: true},
		"not synced": {room: 1 << 30, sync: errDisk},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := onPages(t, memmgr.WithDecay(0))
			sleepers, others := mixture(t, p, 300)
			before := resident(p)
			freed, err := p.Sleep("kv", memmgr.SleepOptions{To: store})
			require.Zero(t, freed)
			var op *memmgr.OpError
			require.ErrorAs(t, err, &op)
			if store.short {
				require.ErrorIs(t, err, io.ErrShortWrite)
			} else {
				require.ErrorIs(t, err, errDisk)
			}
			require.Equal(t, before, resident(p))
			for _, x := range append(sleepers, others...) {
				require.False(t, x.Asleep())
				x.require(t)
			}
			releaseTagged(sleepers, others)
		})
	}
	t.Run("no room", func(t *testing.T) {
		_, p := onPages(t, memmgr.WithDecay(0))
		sleepers, others := mixture(t, p, 300)
		into := memmgr.NewLimit(memmgr.Host(), 9<<20)
		_, err := p.Sleep("kv", memmgr.SleepOptions{Into: into})
		require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
		require.Zero(t, into.Used(), "the saved bytes stay counted")
		for _, x := range append(sleepers, others...) {
			x.require(t)
		}
		releaseTagged(sleepers, others)
	})
	t.Run("pages stay", func(t *testing.T) {
		r, p := onPages(t, memmgr.WithDecay(0))
		sleepers, others := mixture(t, p, 300)
		refusal := error(errDisk)
		third := 0
		r.during = func() {
			if third++; third == 3 {
				r.fail.Store(&refusal)
			}
		}
		_, err := p.Sleep("kv", memmgr.SleepOptions{Into: memmgr.Host()})
		require.ErrorIs(t, err, errDisk)
		for _, x := range append(sleepers, others...) {
			x.require(t)
		}
		releaseTagged(sleepers, others)
	})
}

func TestRestoringThatFailsCanBeTriedAgain(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(0))
	sleepers, others := mixture(t, p, 300)
	store := &failingStore{room: 1 << 30}
	_, err := p.Sleep("kv", memmgr.SleepOptions{To: store})
	require.NoError(t, err)
	asleep := resident(p)
	lost := store.data
	for _, breakIt := range []func(){
		func() { store.read = errDisk }, func() { store.swap = true }, func() { store.data = lost[:len(lost)/2] },
	} {
		breakIt()
		require.Error(t, p.Wake("kv"))
		require.True(t, sleepers[0].Asleep() && sleepers[len(sleepers)-1].Asleep())
		require.Equal(t, asleep, resident(p), "bytes of the failed read use memory")
		store.read, store.swap, store.data = nil, false, lost
	}
	require.NoError(t, p.Wake("kv"))
	for _, x := range append(sleepers, others...) {
		x.require(t)
	}
	releaseTagged(sleepers, others)
}

// Buffers that are released while they sleep return to the pool. Their memory serves other requests at once,
// and the buffers that still sleep wake with their contents.
func TestReleaseAsleep(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(0), memmgr.WithCache(0))
	sleepers, others := mixture(t, p, 400)
	live := p.Stats().Allocation.Current
	into := memmgr.NewLimit(memmgr.Host(), 1<<30)
	_, err := p.Sleep("kv", memmgr.SleepOptions{Into: into})
	require.NoError(t, err)
	var left []tagged
	for i, x := range sleepers {
		if i%2 == 0 {
			left = append(left, x)
			continue
		}
		x.Release()
		require.False(t, x.Valid())
		x.Release() // again, which does nothing
		live--
	}
	require.Equal(t, live, p.Stats().Allocation.Current)
	rng := rand.New(rand.NewPCG(9, 9))
	for range 400 {
		others = append(others, newTagged(t, p, rng, "kv", 1+rng.IntN(50<<10)))
	}
	require.NoError(t, p.Wake("kv"))
	for _, x := range append(left, others...) {
		x.require(t)
	}
	releaseTagged(left, others)
	require.Zero(t, into.Used())

	all, rest := mixture(t, p, 10)
	_, err = p.Sleep("kv", memmgr.SleepOptions{Into: into})
	require.NoError(t, err)
	releaseTagged(all, rest)
	require.Zero(t, into.Used(), "saved bytes stay after the buffers are released")
	require.NoError(t, p.Wake("kv"))
}

func TestCloseWhileMemorySleeps(t *testing.T) {
	p := memmgr.NewPool(memmgr.Host(), memmgr.WithDecay(0))
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := newTagged(t, p, rng, "kv", 100<<10), newTagged(t, p, rng, "kv", 3<<20)
	if runtime.GOOS != "linux" {
		t.Skip("memory has no pages here that could be given back")
	}
	_, err := p.Sleep("kv", memmgr.SleepOptions{Into: memmgr.Host()})
	require.NoError(t, err)
	var leak *memmgr.LeakError
	require.ErrorAs(t, p.Close(), &leak)
	require.Len(t, leak.Buffers, 2)
	y.Release()
	require.NoError(t, p.Wake("kv"))
	x.require(t)
	_, err = p.Sleep("kv", memmgr.SleepOptions{})
	require.ErrorIs(t, err, memmgr.ErrClosed)
	x.Release()
}

// The memory of a tenant sleeps like other memory of the pool, and is charged until it is released.
func TestTenantsMemorySleeps(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(0))
	tenant, err := p.NewTenant("one", memmgr.TenantOptions{Hard: 2 << 20})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	x, y := newTagged(t, tenant, rng, "kv", 1<<20), newTagged(t, tenant, rng, "kv", 900<<10)
	_, err = p.Sleep("kv", memmgr.SleepOptions{Into: memmgr.Host()})
	require.NoError(t, err)
	_, err = memmgr.New(tenant, memmgr.Request{Size: 1 << 20})
	require.ErrorIs(t, err, memmgr.ErrOutOfMemory)
	y.Release()
	z := newTagged(t, tenant, rng, "", 900<<10)
	require.NoError(t, p.Wake("kv"))
	x.require(t)
	z.require(t)
	releaseTagged([]tagged{x, z})
	require.NoError(t, tenant.Close())
}

func TestSleepAgain(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(0))
	rng := rand.New(rand.NewPCG(1, 1))
	x := newTagged(t, p, rng, "kv", 1<<20)
	_, err := p.Sleep("kv", memmgr.SleepOptions{Into: memmgr.Host()})
	require.NoError(t, err)
	freed, err := p.Sleep("kv", memmgr.SleepOptions{})
	require.NoError(t, err)
	require.Zero(t, freed, "it sleeps already")
	y := newTagged(t, p, rng, "kv", 1<<20)
	freed, err = p.Sleep("kv", memmgr.SleepOptions{Into: memmgr.Host()})
	require.NoError(t, err)
	require.NotZero(t, freed)
	require.NoError(t, p.Wake("kv"))
	x.require(t)
	y.require(t)
	releaseTagged([]tagged{x, y})
}

// ordered is memory with pages whose work a simulated device does.
type ordered struct {
	*paged
	memmgr.Synchronizer
}

func TestSleepWaitsForWork(t *testing.T) {
	sim := memtest.NewSimulated()
	p := memmgr.NewPool(&ordered{&paged{Resource: memmgr.Host()}, sim}, memmgr.WithDecay(0))
	b, err := memmgr.New(p, memmgr.Request{Size: 1 << 20, Tag: "kv"})
	require.NoError(t, err)
	touch(t, b, 7)
	work := sim.Submit(3)
	b.Inside().SwapPending(sim.CopyEvent(work))
	_, err = p.Sleep("kv", memmgr.SleepOptions{})
	require.ErrorIs(t, err, memmgr.ErrInUse)
	require.False(t, b.Asleep())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = p.Sleep("kv", memmgr.SleepOptions{Context: ctx})
	require.ErrorIs(t, err, memmgr.ErrInUse)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, b.Asleep())

	slept := make(chan error)
	go func() {
		_, err := p.Sleep("kv", memmgr.SleepOptions{Into: memmgr.Host(), Context: context.Background()})
		slept <- err
	}()
	require.Eventually(t, b.Asleep, patience, time.Millisecond)
	sim.Complete(work)
	require.NoError(t, <-slept)
	require.NoError(t, p.Wake("kv"))
	b.Inside().SwapPending(0)
	sim.ReleaseEvent(work)
	sim.ReleaseEvent(work)
	requireAll(t, b, 7)
	b.Release()
	require.NoError(t, p.Close())
	noEvents(t, sim)
}

// Users that work, release and allocate while the memory falls asleep and wakes see their own bytes or an error.
func TestSleepBesideUse(t *testing.T) {
	_, p := onPages(t, memmgr.WithDecay(50*time.Millisecond), memmgr.WithCache(1<<20))
	first, err := memmgr.New(p, memmgr.Request{Size: 3000, Tag: "kv"}) // so that the pool knows the tag
	require.NoError(t, err)
	first.Release()
	var stop atomic.Bool
	var users sync.WaitGroup
	worked, refused := atomic.Int64{}, atomic.Int64{}
	for g := range 4 {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			live := make([]memmgr.Buffer, 20)
			mark := make([]byte, 3000)
			for i := range mark {
				mark[i] = byte(g + 1)
			}
			got := make([]byte, len(mark))
			for !stop.Load() {
				at := rng.IntN(len(live))
				b := live[at]
				switch {
				case !b.Valid():
					var err error
					if b, err = memmgr.New(p, memmgr.Request{Size: uintptr(3000 + rng.IntN(50000)), Tag: "kv"}); err != nil {
						panic(err)
					}
					for errors.Is(memmgr.CopyIn(b, 0, mark), memmgr.ErrAsleep) {
						runtime.Gosched()
					}
					live[at] = b
				case rng.IntN(3) == 0:
					b.Release()
					live[at] = memmgr.Buffer{}
				default:
					err := memmgr.CopyOut(b, 0, got)
					if err != nil {
						if !errors.Is(err, memmgr.ErrAsleep) {
							panic(err)
						}
						refused.Add(1)
						continue
					}
					if !bytes.Equal(got, mark) {
						panic("other bytes than were written")
					}
					worked.Add(1)
				}
			}
			for _, b := range live {
				if b.Valid() {
					b.Release()
				}
			}
		})
	}
	into := memmgr.NewLimit(memmgr.Host(), 1<<30)
	slept := 0
	for start := time.Now(); (slept < 100 || worked.Load() < 100) && time.Since(start) < time.Minute; {
		_, err := p.Sleep("kv", memmgr.SleepOptions{Into: into})
		if err == nil {
			slept++
		} else if !errors.Is(err, memmgr.ErrInUse) {
			require.NoError(t, err)
		}
		require.NoError(t, p.Wake("kv"))
		runtime.Gosched()
	}
	stop.Store(true)
	users.Wait()
	require.NotZero(t, slept)
	require.NotZero(t, worked.Load())
	t.Logf("slept %d times; %d reads, %d refused", slept, worked.Load(), refused.Load())
	require.Zero(t, into.Used())
	p.Trim(0)
	require.Zero(t, p.Stats().ReservedBytes.Current)
}
