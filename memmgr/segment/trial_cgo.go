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
	"github.com/usmbridge/usmbridge/memmgr/internal/sysmem"
	"github.com/usmbridge/usmbridge/syclobj"
)

// tryOverlay tests whether a memory file can be mapped over memory of this resource.
func tryOverlay(usm memmgr.Resource) error {
	device, err := usm.Place().Device()
	if err != nil {
		return err
	}
	if info := device.Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		return cannot("%s is not in pages of the process; only that of an OpenCL CPU device is", usm.Place())
	}
	// Runtimes allocate small and large blocks in different ways.
	for _, pages := range []uintptr{1, 16, 1024} {
		if err := tryOverlayOf(usm, pages*sysmem.PageSize); err != nil {
			return fmt.Errorf("test with %d bytes of %s: %w", pages*sysmem.PageSize, usm.Place(), err)
		}
	}
	return nil
}

// tryOverlayOf runs the test on size bytes, a multiple of 16.
func tryOverlayOf(usm memmgr.Resource, size uintptr) (err error) {
	c := cost{mappings: mappingsOf(usm) + 1, descriptors: 1}
	if err := spent.take("NewUSM", c); err != nil {
		return err
	}
	defer func() { spent.giveBack(c) }()
	fd, err := createFile(size)
	if err != nil {
		return err
	}
	defer closeFile(fd)
	other, err := newRegion(nil, size, sysmem.PageSize) // stands for the mapping of a peer
	if err != nil {
		return err
	}
	defer other.end()
	if err := other.cover(fd, false); err != nil {
		return err
	}
	r, err := newRegion(usm, size, sysmem.PageSize)
	if err != nil {
		return err
	}
	defer func() {
		if r.end() {
			return
		}
		c.mappings = 1 // only that of other is released
		if err == nil {
			err = cannot("private pages cannot be mapped under it again")
		}
	}()
	if r.base%sysmem.PageSize != 0 {
		return cannot("an allocation at %#x is not aligned (want %d bytes)", r.base, sysmem.PageSize)
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

// tryBytes checks that commands of the queue and another mapping of the file see each other's
// writes.
func tryBytes(q *syclobj.Queue, place *syclobj.Place, r *region, other []byte, fd int) error {
	at, back := pointer(r.base), make([]byte, r.size)
	for _, step := range []struct {
		name, text string
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
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if !bytes.Equal(seen, sample(r.size, step.text)) {
			return cannot("%s and another mapping of the memory have different bytes", step.name)
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

// stillUSM checks that the runtime still reports the memory as USM of its kind.
func stillUSM(place *syclobj.Place, r *region) error {
	own := (*C.usmb_place)(place.Ref())
	var found *C.usmb_place
	code := C.usmb_sycl_place_for(own.context, own.queue, pointer(r.base), pointer(r.base+r.size), &found)
	if code != C.USMB_SYCL_OK {
		return cannot("the runtime no longer reports its kind: %v", syclobj.Code(code))
	}
	defer C.usmb_place_release(found)
	if found.kind != own.kind {
		return cannot("the runtime reports it as %v memory", syclobj.USMKind(found.kind))
	}
	return nil
}
