// Package pressure trims the pools of memmgr before the process reaches the memory limit of its container.
//
// Pools keep idle memory for reuse, and the kernel counts it as memory of the control group: at the limit it
// kills the process although its pools could give memory back. One call in main prevents that:
//
//	if err := pressure.Watch(ctx, pressure.Options{PoolLimit: 0.7}); err != nil {
//		log.Print(err) // no limit, for example
//	}
//
// The watch is a loop that looks at the group 20 times a second, so a process that takes the memory between
// Options.At and the limit faster than that can still be killed. The bound that always holds for pools is
// Options.PoolLimit. Linux only; elsewhere Watch returns an error.
package pressure

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Options of [Watch]. The zero value trims from four fifths of the limit.
type Options struct {
	// Limit is the bytes that the process may use; 0 means the limit of its control groups.
	Limit uint64
	// At is the used part of the limit from which idle memory is trimmed; 0 means 0.8. Files in the page
	// cache that the kernel can drop do not count as used.
	At float64
	// PoolLimit is the part of the limit, at most 1, that the default pools may hold together
	// (memmgr.SetDefaultLimit); 0 leaves their limit as it is.
	PoolLimit float64
}

// OptionError reports a part of the limit in [Options] that is not a number from 0 to 1.
type OptionError struct {
	Option string // the field, such as "PoolLimit"
	Value  float64
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("Options.%s is %v, want a part of the limit from 0 to 1; write 0.7 for 70 %%", e.Option, e.Value)
}

func (o *Options) check() error {
	for _, f := range []OptionError{{"At", o.At}, {"PoolLimit", o.PoolLimit}} {
		if math.IsNaN(f.Value) || f.Value < 0 || f.Value > 1 {
			return &f
		}
	}
	return nil
}

const (
	period = 50 * time.Millisecond
	// After a trim that freed less than one part in vainPart of the limit, the next one waits for vainPause.
	vainPart  = 100
	vainPause = time.Second
	// stalled is the percentage of the last ten seconds, in which tasks waited for memory, from which idle memory
	// is trimmed: a group with memory.high is slowed down below its limit.
	stalled = 10
)

// Watch sets the limit of the default pools, and starts a goroutine that trims all pools when the memory in
// use comes near the limit, or when the kernel reports that the group waits for memory. The goroutine ends
// with the context. Watch fails with an [*OptionError] if an option is invalid. It also fails if there is no limit
// or the use of memory cannot be read; the error wraps memlimit.ErrNoLimit or the reason of the system.
func Watch(ctx context.Context, o Options) error {
	w, err := newWatch(o, "/proc/self/mountinfo", "/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("pressure: Watch: %w", err)
	}
	if o.PoolLimit > 0 {
		memmgr.SetDefaultLimit(max(1, uint64(o.PoolLimit*float64(w.limit))))
	}
	go w.run(ctx)
	return nil
}

type watch struct {
	group group
	limit uint64
	at    uint64
	trim  func() (freed uint64)
	next  time.Time // no trim before
}

func newWatch(o Options, mountinfo, cgroups string) (*watch, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.At == 0 {
		o.At = 0.8
	}
	limit := o.Limit
	if limit == 0 {
		var err error
		if limit, err = memlimit.FromCgroup(); err != nil {
			return nil, fmt.Errorf("the limit of the control group: %w; set Options.Limit", err)
		}
	}
	g, err := findGroup(mountinfo, cgroups, limit)
	if err != nil {
		return nil, err
	}
	return &watch{group: g, limit: limit, at: uint64(o.At * float64(limit)), trim: memmgr.TrimAll}, nil
}

func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			w.check(now)
		case <-ctx.Done():
			return
		}
	}
}

// check trims if the group is near its limit or waits for memory.
func (w *watch) check(now time.Time) {
	if now.Before(w.next) || !w.group.uses(w.at) && w.group.stalls() < stalled {
		return
	}
	if w.trim() < w.limit/vainPart {
		w.next = now.Add(vainPause)
	}
}
