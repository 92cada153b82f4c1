package segment

import (
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/internal/shared"
	"github.com/usmbridge/usmbridge/syclobj"
)

// Default returns the pool that the whole process shares for segments of one audience in the memory
// of one context, device and kind; memmgr.Default does the same for memory that is not shared with
// other processes. If q is nil or of the host backend, it is the pool of host memory. The pool
// counts against the limit of memmgr.SetDefaultLimit, and memmgr.CloseDefaults closes it. Default
// fails as [NewHost] and [NewUSM] do. It is safe for concurrent use.
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

// closer converts r to an io.Closer that is nil on errors, rather than one that holds a nil pointer.
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
