//go:build cgo && linux

package memmgr_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/dlpack"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testsycl"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
	"github.com/usmbridge/usmbridge/usmarray"
)

// A schedule is a random sequence of the actions of users: allocate for a queue or for the host, submit work on
// one or several buffers, export memory to a consumer that works on another queue without recording it,
// release. Meanwhile the device ends pieces of work in any order. The fake machine records when each piece
// began. Memory may be allocated again only when all former work is done, or for a queue that orders its work
// after it. This is checked for each two pieces of work on the same bytes, also of schedules on several goroutines.

// piece is a piece of work on memory.
type piece struct {
	from, to uintptr
	event    *syclobj.Event
	after    []*piece // of former users: they must begin before
}

// works are the pieces of work of schedules that run at the same time.
type works struct {
	mu     sync.Mutex
	pieces []*piece
	reused int // how often memory was given out behind work
}

// block is memory from its allocation on.
type block struct {
	buffer memmgr.Buffer
	behind []*piece // work of former users that went on when it was given out
}

// consumer has a tensor, and works on the queue of its export.
type consumer struct {
	tensor dlpack.Tensor
	block  *block
	queue  *syclobj.Queue
}

// schedule is the actions of one goroutine.
type schedule struct {
	fake      *sycltest.Fake
	rt        *syclobj.Runtime
	scratch   memmgr.Buffer
	rng       *rand.Rand
	devices   []scheduled
	blocks    []*block
	consumers []consumer
	works     *works
}

// scheduled is a resource of a device.
type scheduled struct {
	pools  []*memmgr.Pool
	queues []*syclobj.Queue
}

var errReused = errors.New("memory was reused under work")

// Few sizes, so that memory is reused soon.
var scheduledSizes = []uintptr{600, 5000, 300 << 10}

// mostPending bounds the pieces of work of a machine before a step: a barrier can wait for 64.
const mostPending = 20

func (s *schedule) allocate(d *scheduled) error {
	request := memmgr.Request{Size: scheduledSizes[s.rng.IntN(len(scheduledSizes))]}
	if s.rng.IntN(3) > 0 {
		request.Queue = d.queues[s.rng.IntN(len(d.queues))]
	}
	b, err := memmgr.New(d.pools[s.rng.IntN(len(d.pools))], request)
	if err != nil {
		return err
	}
	x := &block{buffer: b}
	s.blocks = append(s.blocks, x)
	from, to, pending := b.Address(), b.Address()+uintptr(b.Size()), b.Pending()
	s.works.mu.Lock()
	defer s.works.mu.Unlock()
	for _, p := range s.works.pieces {
		if p.to <= from || p.from >= to || p.event.Done() {
			continue
		}
		if request.Queue == nil || request.Queue.Properties()&syclobj.InOrder == 0 {
			return fmt.Errorf("%w: %#x was given out for %v", errReused, from, request.Queue)
		}
		if !pending {
			return fmt.Errorf("%w: the host does not wait for the work at %#x", errReused, from)
		}
		x.behind = append(x.behind, p)
		s.works.reused++
	}
	return nil
}

// worked records work.
func (s *schedule) worked(x *block, ev *syclobj.Event) {
	s.works.mu.Lock()
	defer s.works.mu.Unlock()
	s.works.pieces = append(s.works.pieces, &piece{x.buffer.Address(), x.buffer.Address() + uintptr(x.buffer.Size()), ev, x.behind})
}

// submit submits work on one to three buffers to a queue, and records it in one of the ways of the API.
func (s *schedule) submit(q *syclobj.Queue, blocks []*block) error {
	x := blocks[0]
	if len(blocks) > 1 || s.rng.IntN(2) == 0 {
		var sub memmgr.Submission
		buffers := make([]memmgr.Buffer, 0, len(blocks))
		for _, b := range blocks {
			buffers = append(buffers, b.buffer)
		}
		var after []*syclobj.Event
		for _, ref := range sub.Begin(q, buffers) {
			e, err := s.rt.EventFromRef(ref)
			if err != nil {
				return err
			}
			after = append(after, e)
		}
		ev, err := q.Memset(x.buffer.Data(), 1, 8, after...)
		for _, e := range after {
			_ = e.Close()
		}
		if err != nil {
			return errors.Join(err, sub.End(nil))
		}
		for i, b := range blocks {
			if i > 0 {
				s.worked(b, ev.Copy())
			} else {
				s.worked(b, ev)
			}
		}
		if err := s.scratch.SetPending(nil, ev); err != nil {
			return err
		}
		ref := s.scratch.PendingEvent() // a reference for End to take
		s.scratch.ClearPending()
		return sub.End(ref)
	}
	// The rule for SetPending: the queue waits for the pending work before it works.
	x.buffer.UsedOn(q)
	ev, err := q.Memset(x.buffer.Data(), 1, 8)
	if err != nil {
		return err
	}
	s.worked(x, ev)
	return x.buffer.SetPending(q, ev)
}

// show exports memory to a consumer that works on a queue.
func (s *schedule) show(q *syclobj.Queue, x *block) error {
	x.buffer.Retain()
	n := int(x.buffer.Size())
	layout, err := usmarray.NewLayout([]int{n}, []int{1}, 0)
	if err != nil {
		return err
	}
	a, err := usmarray.FromBuffer(x.buffer, usmarray.Uint8, layout)
	if err != nil {
		x.buffer.Release()
		return err
	}
	defer a.Release()
	t, err := a.DLPackWith(usmarray.ExportOptions{OnQueue: q})
	if err != nil {
		return err
	}
	s.consumers = append(s.consumers, consumer{t, x, q})
	return nil
}

// consume submits the work of a consumer, which is not recorded.
func (s *schedule) consume(c consumer) error {
	ev, err := c.queue.Memset(c.block.buffer.Data(), 2, 8)
	if err == nil {
		s.worked(c.block, ev)
	}
	return err
}

// of returns the blocks of a device.
func (s *schedule) of(d *scheduled) (found []*block) {
	for _, b := range s.blocks {
		for _, p := range d.pools {
			if b.buffer.Resource() == memmgr.Resource(p) {
				found = append(found, b)
			}
		}
	}
	return found
}

// step performs one action.
func (s *schedule) step() error {
	d := &s.devices[s.rng.IntN(len(s.devices))]
	q := d.queues[s.rng.IntN(len(d.queues))]
	mine := s.of(d)
	s.rng.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
	switch n := s.rng.IntN(12); {
	case n < 3 || len(mine) == 0:
		return s.allocate(d)
	case n < 6:
		return s.submit(q, mine[:1+s.rng.IntN(min(3, len(mine)))])
	case n < 7:
		return s.show(q, mine[0])
	case n < 8 && len(s.consumers) > 0:
		return s.consume(s.consumers[s.rng.IntN(len(s.consumers))])
	case n < 9 && len(s.consumers) > 0:
		i := s.rng.IntN(len(s.consumers))
		s.consumers[i].tensor.Release()
		s.consumers = append(s.consumers[:i], s.consumers[i+1:]...)
	case n < 11:
		if s.rng.IntN(2) == 0 {
			d.pools[s.rng.IntN(len(d.pools))].Tick()
		}
		s.release(s.rng.IntN(len(s.blocks)))
	default:
		if pending := s.fake.Pending(); pending > 0 {
			s.fake.Release(s.rng.IntN(pending))
		}
	}
	return nil
}

// release releases a block of a user; consumers may hold it longer.
func (s *schedule) release(i int) {
	s.blocks[i].buffer.Release()
	s.blocks = append(s.blocks[:i], s.blocks[i+1:]...)
}

// run performs the actions of a schedule, and releases its memory.
func (s *schedule) run() (err error) {
	for i := 20 + s.rng.IntN(60); i > 0 && err == nil; i-- {
		for pending := s.fake.Pending(); pending > mostPending; pending = s.fake.Pending() {
			s.fake.Release(s.rng.IntN(pending))
		}
		err = s.step()
	}
	for len(s.consumers) > 0 {
		s.consumers[0].tensor.Release()
		s.consumers = s.consumers[1:]
	}
	for len(s.blocks) > 0 {
		s.release(0)
	}
	return err
}

// play runs schedules to their ends, each on a goroutine of its own.
func (w *works) play(fake *sycltest.Fake, all []*schedule) (err error) {
	fake.Hold(true)
	over := make(chan error, len(all))
	for _, s := range all {
		go func() { over <- s.run() }()
	}
	for range all {
		err = errors.Join(err, <-over)
	}
	fake.Hold(false)
	fake.ReleaseAll()
	for _, p := range w.pieces {
		err = errors.Join(err, p.event.Wait(context.Background()))
	}
	for _, p := range w.pieces {
		err = errors.Join(err, p.inOrder())
	}
	for _, p := range w.pieces {
		_ = p.event.Close()
	}
	return err
}

// inOrder checks that the work of former users of the memory began before.
func (p *piece) inOrder() error {
	for _, former := range p.after {
		own, err := p.event.Times()
		if err != nil {
			return err
		}
		before, err := former.event.Times()
		if err != nil {
			return err
		}
		if own.Started <= before.Started {
			return fmt.Errorf("%w: at %#x new work began at %d, that of before at %d", errReused, p.from, own.Started, before.Started)
		}
	}
	return nil
}

// stage is the machine of the schedules: two devices with two kinds of memory each, and queues of either order.
func stage(t *testing.T, rt *syclobj.Runtime, around func(memmgr.Resource) memmgr.Resource) []scheduled {
	var devices []scheduled
	for _, filter := range []string{"level_zero:gpu:0", "level_zero:gpu:1"} {
		device := testenv.Must(rt.Device(filter))(t)
		var d scheduled
		for _, order := range []syclobj.QueueProperty{syclobj.InOrder, syclobj.InOrder, syclobj.OutOfOrder} {
			d.queues = append(d.queues, testenv.Opened(rt.NewQueue(nil, device, order|syclobj.Profiling))(t))
		}
		for _, kind := range []syclobj.USMKind{syclobj.USMDevice, syclobj.USMShared} {
			p := newPool(t, around(testsycl.USM(t, d.queues[0], kind)), memmgr.WithCache(64<<10))
			p.Untended() // its clock is a step of the schedule
			d.pools = append(d.pools, p)
		}
		devices = append(devices, d)
	}
	return devices
}

// schedules runs so many rounds of schedules, several in each, and stops at the first failure.
func schedules(t *testing.T, fake *sycltest.Fake, rt *syclobj.Runtime, devices []scheduled, seed uint64, rounds, atOnce int) (reused int, err error) {
	scratch := testsycl.USM(t, devices[0].queues[0], syclobj.USMHost)
	all := make([]*schedule, atOnce)
	for i := range all {
		all[i] = &schedule{fake: fake, rt: rt, scratch: testenv.Held(memmgr.New(scratch, memmgr.Request{Size: 1}))(t), devices: devices}
	}
	for round := range rounds {
		w := &works{}
		for i, s := range all {
			s.rng, s.works = rand.New(rand.NewPCG(seed, uint64(round*atOnce+i))), w
		}
		err := w.play(fake, all)
		if reused += w.reused; err != nil {
			return reused, fmt.Errorf("round %d of seed %d: %w", round, seed, err)
		}
	}
	for _, d := range devices {
		for _, p := range d.pools {
			p.Trim(0)
			require.Zero(t, p.Stats().ActiveBytes.Current, "blocks whose work is done")
		}
	}
	return reused, nil
}

func itself(r memmgr.Resource) memmgr.Resource { return r }

// The rules of queues hold in random schedules: USMBRIDGE_SCHEDULES of them, in child processes whose number of
// schedules keeps the fake library's list of deleted objects short.
func TestFakeSchedules(t *testing.T) {
	count := 3000
	if text := os.Getenv("USMBRIDGE_SCHEDULES"); text != "" {
		count = testenv.Must(strconv.Atoi(text))(t)
	}
	const most = 50000
	for part := 0; part*most < count; part++ {
		t.Run(strconv.Itoa(part), func(t *testing.T) {
			t.Parallel()
			onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
				start, n := time.Now(), min(most, count-part*most)
				reused := testenv.Must(schedules(t, fake, rt, stage(t, rt, itself), uint64(part), n, 1))(t)
				require.Greater(t, reused, n/100, "schedules in which memory was reused behind work")
				t.Logf("%d schedules in %v, memory was given out behind work %d times", n, time.Since(start), reused)
			})
		})
	}
}

// The same holds for schedules on several goroutines that use one pool.
func TestFakeSchedulesAtOnce(t *testing.T) {
	onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
		devices := stage(t, rt, itself)[:1]
		devices[0].pools = devices[0].pools[:1]
		reused := testenv.Must(schedules(t, fake, rt, devices, 1, 200, 3))(t)
		require.Greater(t, reused, 30, "how often memory was given out behind work")
	})
}

// liar is a resource that misreports its events or queues, which breaks one of the rules that pools rely on.
type liar struct {
	memmgr.Resource
	memmgr.Synchronizer
	mistake string
}

func (l liar) Upstream() memmgr.Resource { return l.Resource }

func (l liar) EventDone(event uintptr) bool {
	return l.mistake == "events are done early" || l.Synchronizer.EventDone(event)
}

func (l liar) SameOrder(a, b uintptr) bool {
	return l.mistake == "every queue is in order" && a == b || l.Synchronizer.SameOrder(a, b)
}

func (l liar) Barrier(queue uintptr) (uintptr, error) {
	if l.mistake == "consumers are forgotten" {
		return 0, nil
	}
	return l.Synchronizer.Barrier(queue)
}

func (l liar) Join(queue, a, b uintptr) (uintptr, error) {
	if l.mistake == "the first of two is forgotten" {
		return l.CopyEvent(b), nil
	}
	return l.Synchronizer.Join(queue, a, b)
}

// The checker detects each rule that is broken, soon.
func TestFakeSchedulesFindMistakes(t *testing.T) {
	for _, mistake := range []string{
		"events are done early", "every queue is in order", "consumers are forgotten", "the first of two is forgotten",
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()
			onFake(t, sycltest.TwoGPUs, func(fake *sycltest.Fake, rt *syclobj.Runtime) {
				devices := stage(t, rt, func(r memmgr.Resource) memmgr.Resource {
					s, ok := memmgr.As[memmgr.Synchronizer](r)
					require.True(t, ok)
					return liar{r, s, mistake}
				})
				_, err := schedules(t, fake, rt, devices, 7, 20000, 1)
				require.ErrorIs(t, err, errReused)
				t.Log(err)
			})
		})
	}
}

// Memory that two consumers received, each with a queue of its own, waits for the work of both, in a pool and
// without one. The second consumer's queue is the queue of last use.
func TestFakeConsumersOnTwoQueues(t *testing.T) {
	onTwoQueues(t, func(fake *sycltest.Fake, _ *syclobj.Runtime, queues [2]*syclobj.Queue, r memmgr.Resource) {
		pool := newPool(t, r)
		for name, from := range map[string]memmgr.Resource{"pool": pool, "resource": r} {
			used := fake.Used(0)
			b := mustNew(t, from, 5000)
			fake.Hold(true)
			b.SetExported()
			b.UsedOn(queues[0])
			first := fill(t, queues[0], b) // unreported work of the consumer
			b.UsedOn(queues[1])
			address := b.Address()
			b.Release()
			pool.Tick()
			endOtherWork := func() { // ends the work that does not wait for that of the first consumer
				for i := fake.Pending() - 1; i > 0; i-- {
					fake.Release(i)
				}
				pool.Tick()
				letOthersRun()
			}
			endOtherWork()
			require.False(t, first.Done())
			if name == "pool" {
				for _, q := range []*syclobj.Queue{nil, queues[1]} {
					again := testenv.Must(memmgr.New(from, memmgr.Request{Size: 5000, Queue: q}))(t)
					if again.Address() == address {
						next := fill(t, queues[1], again)
						endOtherWork()
						require.False(t, q == nil || next.Done(), "given out under the first consumer's work")
					}
					again.Release()
				}
			} else {
				require.Greater(t, fake.Used(0), used, "freed under the first consumer's work")
			}
			fake.Hold(false)
			fake.ReleaseAll()
			require.NoError(t, first.Wait(t.Context()))
			memmgr.Flush()
		}
	})
}
