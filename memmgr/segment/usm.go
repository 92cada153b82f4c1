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
// On an OpenCL CPU device, whose USM is pages of the process, any kind can be shared: a
// memory file is laid over an allocation, which stays USM of its kind, and pages of the
// process's own are put back before it is freed. Nothing in SYCL promises that, so the
// first call for a device and kind tries it: that the runtime still tells the kind, and
// that copies and fills on the queue and another mapping of the file see each other's
// bytes.
//
// On other devices memory of kind "device" can be shared with [PeersWrite] where the SYCL
// library has handles for it (DPCTLIPCMem_GetHandle, in releases of dpctl after 0.22) and
// the device supports them. Segments are then multiples of 2 MiB, so that a peer sees
// nothing beside them.
//
// Where neither is so NewUSM fails with errors.ErrUnsupported, and says why. The memory
// has any content. The queue may be closed afterwards.
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
	if r.usm, r.handles, err = shareable(op, q, kind); err != nil {
		return nil, err
	}
	if !r.handles {
		err = tryFile(op, a)
	} else if a != PeersWrite {
		err = opError(op, errors.ErrUnsupported, "%v is shared by handles, by which others can write; nothing makes it for %q", r.usm.Place(), a)
	}
	if err != nil {
		closeUSM(r.usm)
		return nil, err
	}
	r.place = r.usm.Place()
	return r, nil
}

// shareable makes the resource of USM that memory files are laid over, or that handles
// are made for, where either works.
func shareable(op string, q *syclobj.Queue, kind syclobj.USMKind) (usm memmgr.Resource, handles bool, err error) {
	place, err := q.Place(kind)
	if err != nil {
		return nil, false, &OpError{Op: op, Err: err}
	}
	defer place.Release()
	usm = memmgr.USM(q, kind)
	if handles, err = trials.of(place, q.Device()).settled(usm); err != nil {
		closeUSM(usm)
		return nil, false, failed(op, err)
	}
	return usm, handles, nil
}

// closeUSM lets go of a resource's context.
func closeUSM(usm memmgr.Resource) {
	if c, ok := usm.(interface{ Close() error }); ok {
		_ = c.Close() // lets go of a count, and cannot fail
	}
}

// trials remembers how the USM of which devices can be shared.
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

// trial is how it works on one device; whoever comes while it is tried waits.
type trial struct {
	mu      sync.Mutex
	done    bool
	handles bool
	err     error
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

// settled returns whether it works by handles, or an error where it does not work. What
// it found out stays, what kept it from finding out does not.
func (t *trial) settled(usm memmgr.Resource) (handles bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return t.handles, t.err
	}
	handles, err = try(usm)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.done, t.handles, t.err = true, handles, err
	}
	return handles, err
}

// try finds out how memory of this resource can be shared.
func try(usm memmgr.Resource) (handles bool, err error) {
	files := tryOverlay(usm)
	if !errors.Is(files, errors.ErrUnsupported) {
		return false, files
	}
	err = tryHandles(usm)
	if errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("not by files: %w; not by handles: %w", files, err)
	}
	return true, err
}

// cannot is the error of a device whose USM cannot be shared.
func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, fmt.Sprintf(format, args...))
}
