package sysmem

import (
	"bytes"
	"fmt"

	"github.com/usmbridge/usmbridge/internal/owner"
	"github.com/usmbridge/usmbridge/syclobj"
)

// TryDiscard tests whether the pages of memory of a place can be returned. Only the
// OpenCL device of a CPU allocates USM in private memory of the process; memory that another
// device maps must never lose its pages. The test checks that the pages go, and that copies on the queue
// still work. The mappings stay, so that the runtime still knows the memory.
func TryDiscard(place *syclobj.Place) error {
	device, err := place.Device()
	if err != nil {
		return err
	}
	if info := device.Info(); info.Backend != syclobj.BackendOpenCL || info.Type != syclobj.TypeCPU {
		return noPages("memory of %s is not memory of the process; only an OpenCL CPU device's is", place)
	}
	q, err := place.Queue()
	if err != nil {
		return err
	}
	const pages = 16
	size := pages * PageSize
	address, err := AllocUSM(place, size, PageSize)
	if err != nil {
		return err
	}
	defer func() { _ = FreeUSM(place, address) }() // it was allocated above
	at := owner.Pointer(address)
	sample, back := bytes.Repeat([]byte("USM with pages. "), int(size)/16), make([]byte, size)
	if err := q.Write(at, sample); err != nil {
		return err
	}
	if err := Discard(address, size); err != nil {
		return err
	}
	if n := Resident(address, size); n != 0 {
		return noPages("%d of %d bytes stayed resident after their pages were returned", n, size)
	}
	for _, copies := range []func() error{
		func() error { return q.Read(back, at) },
		func() error { return q.Write(at, sample) },
		func() error { return q.Read(back, at) },
	} {
		if err := copies(); err != nil {
			return fmt.Errorf("using memory whose pages were given back: %w", err)
		}
	}
	if !bytes.Equal(back, sample) {
		return noPages("memory whose pages were given back does not store data any more")
	}
	return nil
}
