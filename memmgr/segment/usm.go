package segment

import (
	"errors"
	"fmt"
	"sync"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// NewUSM returns a resource of segments in unified shared memory of a queue's context and device.
// For a queue of the host backend it calls [NewHost].
//
// On an OpenCL CPU device, whose USM is in pages of the process, any kind can be shared. A memory
// file is mapped over an allocation, which stays USM of its kind. Private pages are mapped under it
// again before it is freed. SYCL does not guarantee that this works, so the first call for a device
// and kind tests it: the runtime must still report the kind, and commands on the queue and another
// mapping of the file must see each other's writes.
//
// On other devices memory of kind device can be shared with [PeersWrite] if the SYCL library has
// handles (DPCTLIPCMem_GetHandle, in releases of dpctl after 0.22) and the device supports them.
// Segments are then multiples of 2 MiB and aligned to as much, so that they share no page with other
// allocations; a driver that does not align so cannot share.
//
// If neither works, NewUSM fails with errors.ErrUnsupported and the reason. New segments have
// undefined content. The queue may be closed after the call.
func NewUSM(q *syclobj.Queue, kind syclobj.USMKind, a Audience) (*Resource, error) {
	const op = "NewUSM"
	if q == nil {
		return nil, opError(op, memmgr.ErrRequest, "the queue is nil; use Runtime.DefaultQueue")
	}
	if q.IsHost() {
		return NewHost(a)
	}
	r, err := newResource(op, a)
	if err != nil {
		return nil, err
	}
	if r.usm, r.handles, err = shareable(op, q, kind); err != nil {
		return nil, err
	}
	if !r.handles {
		err = tryFile(op, a)
	} else if a != PeersWrite {
		err = opError(op, errors.ErrUnsupported, "%v is shared by handles, which let peers write; audience %q is not possible", r.usm.Place(), a)
	}
	if err != nil {
		closeUSM(r.usm)
		return nil, err
	}
	r.place = r.usm.Place()
	return r, nil
}

// shareable returns the upstream resource of USM, and whether its memory is shared by handles rather
// than by memory files. It fails if neither works. The caller closes usm.
func shareable(op string, q *syclobj.Queue, kind syclobj.USMKind) (usm memmgr.Resource, handles bool, err error) {
	place, err := q.Place(kind)
	if err != nil {
		return nil, false, &OpError{Op: op, Err: err}
	}
	defer place.Release()
	usm = memmgr.USM(q, kind)
	if handles, err = trials.of(place, q.Device()).result(usm); err != nil {
		closeUSM(usm)
		return nil, false, failed(op, err)
	}
	return usm, handles, nil
}

// closeUSM closes a resource of shareable; usm may be nil. This releases a reference to the context and cannot fail.
func closeUSM(usm memmgr.Resource) { _ = memmgr.Close(usm) }

// trials caches the test results of this process.
var trials = trialTable{m: map[trialKey]*trial{}}

// trialTable has one trial for each device and kind. The context does not affect the result.
type trialTable struct {
	mu sync.Mutex
	m  map[trialKey]*trial
}

type trialKey struct {
	filter, name, driver string
	kind                 syclobj.USMKind
}

// trial is the test of one device and kind.
type trial struct {
	mu      sync.Mutex // held during the test, so that concurrent callers wait for it
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

// result runs the test, unless its result is known. It returns whether memory is shared by handles, or
// an error if it cannot be shared. Errors of the test itself, such as a lack of memory, are not
// kept.
func (t *trial) result(usm memmgr.Resource) (handles bool, err error) {
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

// try tests how memory of this resource can be shared.
func try(usm memmgr.Resource) (handles bool, err error) {
	files := tryOverlay(usm)
	if !errors.Is(files, errors.ErrUnsupported) {
		return false, files
	}
	err = tryHandles(usm)
	if errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("by memory files: %w; by handles: %w", files, err)
	}
	return true, err
}

// cannot returns the error for a device whose USM cannot be shared.
func cannot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errors.ErrUnsupported, fmt.Sprintf(format, args...))
}
