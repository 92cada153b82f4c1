//go:build cgo && linux

package segment

/*
#cgo CFLAGS: -I${SRCDIR}/../../syclobj
#include "usmb_sycl.h"
*/
import "C"

import (
	"bytes"
	"context"
	"fmt"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/syclobj"
)

// tryOverlay finds out whether a memory file can be laid over memory of this resource.
func tryOverlay(usm memmgr.Resource) error {
	device, err := usm.Place().Device()
	if err != nil {
		return err
	}
	if info := device.Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		return cannot("%s is not memory of the process; only that of an OpenCL CPU device is", usm.Place())
	}
	// Runtimes serve small and large allocations in different ways.
	for _, pages := range []uintptr{1, 16, 1024} {
		if err := tryOverlayOf(usm, pages*pageSize); err != nil {
			return fmt.Errorf("trying it with %d bytes of %s: %w", pages*pageSize, usm.Place(), err)
		}
	}
	return nil
}

// tryOverlayOf tries it with some bytes, a multiple of sixteen.
func tryOverlayOf(usm memmgr.Resource, size uintptr) (err error) {
	c := cost{mappings: mappingsOf(usm) + 1, descriptors: 1}
	if err := spent.take("NewUSM", c, bounds{}.filled()); err != nil {
		return err
	}
	defer func() { spent.giveBack(c) }()
	fd, err := createFile(size)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	other, err := newRegion(nil, size, pageSize) // as a peer has it
	if err != nil {
		return err
	}
	defer other.end()
	if err := other.cover(fd, false); err != nil {
		return err
	}
	r, err := newRegion(usm, size, pageSize)
	if err != nil {
		return err
	}
	defer func() {
		if r.end() {
			return
		}
		c.mappings = 1 // the others stay
		if err == nil {
			err = cannot("pages of the process's own cannot be put back under it")
		}
	}()
	if r.base%pageSize != 0 {
		return cannot("an allocation that was to be aligned to %d bytes lies at %#x", pageSize, r.base)
	}
	if err := r.cover(fd, false); err != nil {
		return err
	}
	q, err := usm.Place().Queue()
	if err != nil {
		return err
	}
	return tryBytes(q, usm.Place(), &r, unsafe.Slice((*byte)(pointer(other.base)), size), fd)
}

// tryBytes has the queue and another mapping of the file see each other's bytes.
func tryBytes(q *syclobj.Queue, place *syclobj.Place, r *region, other []byte, fd int) error {
	at, back := pointer(r.base), make([]byte, r.size)
	for _, step := range []struct {
		what, text string
		do         func(text string) (seen []byte, err error)
	}{
		{"a copy to it", "written on a q. ", func(text string) ([]byte, error) {
			return other, q.Write(at, sample(r.size, text))
		}},
		{"a copy from it", "written by other", func(text string) ([]byte, error) {
			copy(other, sample(r.size, text))
			return back, q.Read(back, at)
		}},
		{"a fill of it", "filled on a queu", func(text string) ([]byte, error) {
			return other, fill(q, at, text, r.size)
		}},
		{"a copy from it, where it is read-only", "others write on.", func(text string) ([]byte, error) {
			copy(other, sample(r.size, text))
			if err := r.cover(fd, true); err != nil {
				return nil, err
			}
			return back, q.Read(back, at)
		}},
	} {
		seen, err := step.do(step.text)
		if err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if !bytes.Equal(seen, sample(r.size, step.text)) {
			return cannot("%s shows other bytes than another mapping of the same memory", step.what)
		}
		if err := stillUSM(place, r); err != nil {
			return err
		}
	}
	return nil
}

func sample(size uintptr, sixteen string) []byte {
	return bytes.Repeat([]byte(sixteen), int(size)/len(sixteen))
}

func fill(q *syclobj.Queue, at unsafe.Pointer, sixteen string, size uintptr) error {
	e, err := q.Fill(at, []byte(sixteen), size/uintptr(len(sixteen)))
	if err != nil {
		return err
	}
	defer e.Close()
	return e.Wait(context.Background())
}

// stillUSM asks the runtime whether it knows the memory as before.
func stillUSM(place *syclobj.Place, r *region) error {
	own := (*C.usmb_place)(place.Ref())
	var found *C.usmb_place
	code := C.usmb_sycl_place_for(own.context, own.queue, pointer(r.base), pointer(r.base+r.size), &found)
	if code != C.USMB_SYCL_OK {
		return cannot("the runtime does not tell its kind any more: %v", syclobj.Code(code))
	}
	defer C.usmb_place_release(found)
	if found.kind != own.kind {
		return cannot("the runtime calls it %v memory now", syclobj.USMKind(found.kind))
	}
	return nil
}
