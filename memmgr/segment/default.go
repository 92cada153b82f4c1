package segment

import (
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/shared"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Default returns the pool that everything in the process shares for segments of one
// audience in the memory of one context, device and kind, as memmgr.Default does for
// memory of the process's own. It counts against the limit of memmgr.SetDefaultLimit and
// is closed by memmgr.CloseDefaults. On a queue of the host backend (or
// nil) it is that of host memory. It fails as [NewHost] and [NewUSM] do, and may be called
// from any goroutine.
func Default(q *syclobj.Queue, kind syclobj.USMKind, a Audience) (*memmgr.Pool, error) {
	place := syclobj.HostPlace()
	if q != nil && !q.IsHost() {
		p, err := q.Place(kind)
		if err != nil {
			return nil, &OpError{Op: "Default", Err: err}
		}
		defer p.Release()
		place = p
	}
	name := fmt.Sprintf("%s, %v", nameOf(place), a)
	made, err := shared.Pool(shared.Key{Place: place, Variant: a}, name, func() (io.Closer, error) {
		if place.IsHost() {
			return closer(NewHost(a))
		}
		return closer(NewUSM(q, kind, a))
	})
	if err != nil {
		return nil, err
	}
	return made.(*memmgr.Pool), nil
}

// closer keeps a nil *Resource from being an io.Closer.
func closer(r *Resource, err error) (io.Closer, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

func nameOf(place *syclobj.Place) string {
	if place.IsHost() {
		return "host"
	}
	return place.Kind().String() + " " + place.FilterString()
}
