package memmgr

import (
	"io"
	"reflect"
	"runtime"
	"sync"
	"unsafe"
	"weak"
)

// identity tells resources apart that are pointers, without keeping them.
type identity struct{ kind, data uintptr }

// identify returns the identity of a resource and the address of its object, nil
// where the resource is no pointer.
func identify(r Resource) (id identity, object unsafe.Pointer) {
	if r == nil || reflect.TypeOf(r).Kind() != reflect.Pointer {
		return identity{}, nil
	}
	words := (*[2]unsafe.Pointer)(unsafe.Pointer(&r))
	return identity{uintptr(words[0]), uintptr(words[1])}, words[1]
}

// knownResources finds the origin of a resource. What is a pointer stands in it by
// address, weakly: with the resource goes its entry. Other resources, being values,
// stand in it until they are closed; those that cannot be compared never do, and each
// of their cells has an origin of its own.
type knownResources struct {
	parts  [32]knownPart
	values sync.Map // Resource to *origin
}

type knownPart struct {
	mu sync.RWMutex
	by map[identity]*origin
	_  [32]byte
}

var known knownResources

func (k *knownResources) part(id identity) *knownPart {
	return &k.parts[uint64(id.data)*0x9E3779B97F4A7C15>>59%uint64(len(k.parts))]
}

// find returns the origin of a resource, nil when it has none.
func (k *knownResources) find(r Resource) *origin {
	id, object := identify(r)
	if object == nil {
		if !isKey(r) {
			return nil
		}
		o, _ := k.values.Load(r)
		known, _ := o.(*origin)
		return known
	}
	part := k.part(id)
	part.mu.RLock()
	o := part.by[id]
	part.mu.RUnlock()
	// Another object may lie where one was that is gone.
	if o != nil && unsafe.Pointer(o.object.Value()) == object {
		return o
	}
	return nil
}

// isKey tells whether a resource that is no pointer can stand in a map.
func isKey(r Resource) bool { return r != nil && reflect.ValueOf(r).Comparable() }

// enter makes the origin of a resource that has none, unless another does meanwhile.
func (k *knownResources) enter(r Resource) *origin {
	o := newOrigin(r)
	o.list = plainCells()
	var object unsafe.Pointer
	o.id, object = identify(r)
	if object == nil {
		origins.enter(o, false)
		if !isKey(r) {
			return o
		}
		if old, there := k.values.LoadOrStore(r, o); there {
			origins.leave(o)
			return old.(*origin)
		}
		return o
	}
	o.object = weak.Make((*byte)(object))
	part := k.part(o.id)
	part.mu.Lock()
	defer part.mu.Unlock()
	if old := part.by[o.id]; old != nil && unsafe.Pointer(old.object.Value()) == object {
		return old
	}
	origins.enter(o, false)
	if part.by == nil {
		part.by = map[identity]*origin{}
	}
	part.by[o.id] = o
	runtime.AddCleanup((*byte)(object), (*origin).end, o)
	return o
}

// forget takes an origin out, if it stands there still.
func (k *knownResources) forget(o *origin) {
	if o.id.data == 0 {
		k.values.Range(func(r, value any) bool {
			if value == o {
				k.values.Delete(r)
			}
			return value != o
		})
		return
	}
	part := k.part(o.id)
	part.mu.Lock()
	defer part.mu.Unlock()
	if part.by[o.id] == o {
		delete(part.by, o.id)
	}
}

// holdOrigin returns the origin of a resource, made on first use, with one more cell
// counted. In the place of a missing resource it puts one that refuses.
func holdOrigin(r *Resource) *origin {
	for {
		o := known.find(*r)
		if o == nil {
			if missing(*r) {
				*r = noResource{}
			}
			o = known.enter(*r)
		}
		if o.hold(*r) {
			if o.id.data == 0 && !isKey(*r) {
				o.end() // with its one cell, as nobody finds it
			}
			return o
		}
	}
}

// Close closes a resource, if it is an [io.Closer], and forgets it: what the package
// keeps for it goes with the last of its memory, which stays valid. It is for
// resources made by the thousand; one that its user drops is collected without. A
// resource that is used again is known again, unless its own Close prevents it.
func Close(r Resource) error {
	if o := known.find(r); o != nil {
		known.forget(o)
		o.end()
	}
	if c, ok := r.(io.Closer); ok && !missing(r) {
		return c.Close()
	}
	return nil
}
