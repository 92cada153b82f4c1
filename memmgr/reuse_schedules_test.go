//go:build cgo && linux

package memmgr_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
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
// after it. This is checked for each two pieces of work on the same bytes.

// piece is a piece of work on memory.
type piece struct {
	from, to uintptr
	event    *syclobj.Event
	block    *block
	after    []*piece // of former users: they must begin before
}

// block is memory from its allocation on.
type block struct {
	buffer memmgr.Buffer
	behind []*piece // work of former users that went on when it was given out
	shown  bool     // a consumer has or had it
	pieces []*piece
}

// consumer has a tensor, and works on the queue of its export.
type consumer struct {
	tensor dlpack.Tensor
	block  *block
	queue  *syclobj.Queue
}

// schedule runs on one machine.
type schedule struct {
	fake      *sycltest.Fake
	rt        *syclobj.Runtime
	scratch   memmgr.Buffer
	rng       *rand.Rand
	devices   []scheduled
	blocks    []*block
	consumers []consumer
	pieces    []*piece
	reused    *int // how often memory was given out behind work
}

// scheduled is a resource of a device.
type scheduled struct {
	pools  []*memmgr.Pool
	queues []*syclobj.Queue
}

var errReused = errors.New("memory was reused under work")

// Few sizes, so that memory is reused soon.
var scheduledSizes = []uintptr{600, 5000}

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
	from, to := b.Address(), b.Address()+uintptr(b.Size())
	for _, p := range s.pieces {
		if p.to <= from || p.from >= to || p.event.Done() {
			continue
		}
		if request.Queue == nil || request.Queue.Properties()&syclobj.InOrder == 0 {
			return fmt.Errorf("%w: %#x was given out for %v", errReused, from, request.Queue)
		}
		if !b.Pending() {
			return fmt.Errorf("%w: the host does not wait for the work at %#x", errReused, from)
		}
		x.behind = append(x.behind, p)
		*s.reused++
	}
	return nil
}

// worked records work.
func (s *schedule) worked(x *block, ev *syclobj.Event) {
	p := &piece{x.buffer.Address(), x.buffer.Address() + uintptr(x.buffer.Size()), ev, x, x.behind}
	s.pieces = append(s.pieces, p)
	x.pieces = append(x.pieces, p)
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
	x.shown = true
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

// play runs a schedule to its end.
func (s *schedule) play(steps int) error {
	s.fake.Hold(true)
	var err error
	for i := 0; i < steps && err == nil; i++ {
		err = s.step()
	}
	for len(s.consumers) > 0 {
		s.consumers[0].tensor.Release()
		s.consumers = s.consumers[1:]
	}
	for len(s.blocks) > 0 {
		s.release(0)
	}
	s.fake.Hold(false)
	s.fake.ReleaseAll()
	for _, p := range s.pieces {
		err = errors.Join(err, p.event.Wait(context.Background()))
	}
	for _, p := range s.pieces {
		err = errors.Join(err, p.inOrder())
	}
	for _, p := range s.pieces {
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

// schedules runs so many schedules, and stops at the first failure.
func schedules(t *testing.T, fake *sycltest.Fake, rt *syclobj.Runtime, seed uint64, count int, around func(memmgr.Resource) memmgr.Resource) (reused int, err error) {
	devices := stage(t, rt, around)
	scratch := testenv.Held(memmgr.New(testsycl.USM(t, devices[0].queues[0], syclobj.USMHost), memmgr.Request{Size: 1}))(t)
	for i := range count {
		s := &schedule{fake: fake, rt: rt, scratch: scratch, rng: rand.New(rand.NewPCG(seed, uint64(i))), devices: devices, reused: &reused}
		if err := s.play(20 + s.rng.IntN(60)); err != nil {
			return reused, fmt.Errorf("schedule %d of seed %d: %w", i, seed, err)
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
				reused := testenv.Must(schedules(t, fake, rt, uint64(part), n, itself))(t)
				require.Greater(t, reused, n/100, "schedules in which memory was reused behind work")
				t.Logf("%d schedules in %v, memory was given out behind work %d times", n, time.Since(start), reused)
			})
		})
	}
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
				_, err := schedules(t, fake, rt, 7, 20000, func(r memmgr.Resource) memmgr.Resource {
					s, ok := memmgr.As[memmgr.Synchronizer](r)
					require.True(t, ok)
					return liar{r, s, mistake}
				})
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
