package segment

import (
	"errors"
	"fmt"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// NewUSM makes a resource of segments in unified shared memory of a queue's context
// and device. On a queue of the host backend the result is that of [NewHost].
//
// It needs an OpenCL CPU device, whose USM is pages of the process: a memory file is
// laid over an allocation, which stays USM of its kind, and pages of the process's own
// are put back before it is freed. Nothing in SYCL promises that, so the first call for
// a device and kind tries it: that the runtime still tells the kind, and that copies and
// fills on the queue and another mapping of the file see each other's bytes. Where that
// is not so NewUSM fails with errors.ErrUnsupported, and says why. The memory has any
// content. The queue may be closed afterwards.
func NewUSM(q *syclobj.Queue, kind syclobj.USMKind, a Audience, o ...Option) (*Resource, error) {
	const op = "NewUSM"
	if q == nil {
		return nil, opError(op, memmgr.ErrRequest, "no queue was given; Runtime.DefaultQueue has one")
	}
	if q.IsHost() {
		return NewHost(a, o...)
	}
	r, err := newResource(op, a, o)
	if err != nil {
		return nil, err
	}
	if r.usm, err = overlaid(op, q, kind); err != nil {
		return nil, err
	}
	r.place = r.usm.Place()
	return r, nil
}

// overlaid makes the resource of USM that memory files are laid over, where that works.
func overlaid(op string, q *syclobj.Queue, kind syclobj.USMKind) (memmgr.Resource, error) {
	place, err := q.Place(kind)
	if err != nil {
		return nil, &OpError{Op: op, Err: err}
	}
	defer place.Release()
	usm := memmgr.USM(q, kind)
	if err := trials.of(place, q.Device()).settled(usm); err != nil {
		_ = usm.(interface{ Close() error }).Close() // lets go of a context
		return nil, failed(op, err)
	}
	return usm, nil
}

// trials remembers for which devices laying a file over USM works.
var trials = trialTable{m: map[trialKey]*trial{}}

// trialTable has one trial for each device and kind: as many as there are devices, since
// a context makes no difference.
type trialTable struct {
	mu sync.Mutex
	m  map[trialKey]*trial
}

type trialKey struct {
	filter, name, driver string
	kind                 syclobj.USMKind
}

// trial is whether it works on one device; whoever comes while it is tried waits.
type trial struct {
	mu   sync.Mutex
	done bool
	err  error
}

func (t *trialTable) of(place *syclobj.Place, d *syclobj.Device) *trial {
	info := d.Info()
	key := trialKey{filter: place.FilterString(), name: info.Name, driver: info.DriverVersion, kind: place.Kind()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m[key] == nil {
		t.m[key] = &trial{}
	}
	return t.m[key]
}

// settled returns nil where it works. What it found out stays, what kept it from
// finding out does not.
func (t *trial) settled(usm memmgr.Resource) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return t.err
	}
	err := tryOverlay(usm)
	t.done, t.err = err == nil || errors.Is(err, errors.ErrUnsupported), err
	return err
}

// cannot is the error of a device whose USM cannot be shared.
func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, fmt.Sprintf(format, args...))
}
