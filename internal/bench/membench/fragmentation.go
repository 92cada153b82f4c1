//go:build cgo && linux

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"github.com/usmbridge/usmbridge/memmgr"
)

// This file measures fragmentation. 2 GiB of blocks of 256 B to 4 MiB are in use, with a log-uniform distribution of
// sizes. Random blocks are replaced; then half are freed, then all but a tenth. One byte is
// written to each page of each block, so that the resident memory is measured, not the address space.
const (
	fragmentationLive  = 2 << 30
	fragmentationTurns = 1000000
	fragmentationSlots = 50000 // about 5000 are in use; the mean size is 430 KB
	fragmentationPage  = 4096
)

// fragmentationUser is the allocator under test.
type fragmentationUser interface {
	// replace frees the block of a slot and, unless the size is 0, allocates another one. It
	// returns the address.
	replace(slot int, size uint32) unsafe.Pointer
	// note receives the requested bytes in each of the three states.
	note(state string, bound float64, requested uint64)
	// end is called when all slots are empty.
	end()
}

func (b *bench) fragmentation() {
	if b.quick {
		return
	}
	b.fragment(newPoolFragments(b))
	b.fragment(newMallocFragments(b))
}

func (b *bench) fragment(user fragmentationUser) {
	// malloc keeps an arena for each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rng := rand.New(rand.NewPCG(11, 13))
	sizes := make([]uint32, fragmentationSlots)
	var live, spare []int
	for slot := range sizes {
		spare = append(spare, slot)
	}
	requested := uint64(0)
	add := func() {
		slot, size := spare[len(spare)-1], uint32(256*math.Pow(4<<20/256, rng.Float64()))
		spare, live = spare[:len(spare)-1], append(live, slot)
		sizes[slot] = size
		requested += uint64(size)
		at := unsafe.Slice((*byte)(user.replace(slot, size)), size)
		for i := 0; i < len(at); i += fragmentationPage {
			at[i] = 1
		}
		at[size-1] = 1
	}
	drop := func() {
		k := rng.IntN(len(live))
		slot := live[k]
		live[k] = live[len(live)-1]
		live, spare = live[:len(live)-1], append(spare, slot)
		requested -= uint64(sizes[slot])
		user.replace(slot, 0)
	}
	for turn := 0; turn < fragmentationTurns; {
		if requested >= fragmentationLive {
			drop()
			turn++
		}
		for requested < fragmentationLive {
			add()
		}
	}
	user.note("full", 1.2, requested)
	for all := len(live); len(live) > all/2; {
		drop()
	}
	user.note("half freed", 1.3, requested)
	for half := len(live); len(live) > half/5; {
		drop()
	}
	user.note("a tenth left", 2, requested)
	for len(live) > 0 {
		drop()
	}
	user.end()
}

// poolFragments is our pool.
type poolFragments struct {
	b    *bench
	p    *memmgr.Pool
	live []memmgr.Buffer
}

func newPoolFragments(b *bench) *poolFragments {
	return &poolFragments{b: b, p: hostPool(), live: make([]memmgr.Buffer, fragmentationSlots)}
}

func (f *poolFragments) replace(slot int, size uint32) unsafe.Pointer {
	if f.live[slot].Valid() {
		f.live[slot].Release()
	}
	if size == 0 {
		f.live[slot] = memmgr.Buffer{}
		return nil
	}
	buffer, err := memmgr.New(f.p, memmgr.Request{Size: uintptr(size)})
	exitOn(err)
	f.live[slot] = buffer
	return buffer.Data()
}

func (f *poolFragments) note(state string, bound float64, requested uint64) {
	name := "fragmentation, " + state + ": "
	if state == "full" {
		f.add(name+"reserved to requested", 0, float64(f.p.Stats().ReservedBytes.Current), requested)
	}
	f.p.Trim(0)
	reserved := 0.0
	if state == "full" {
		reserved = bound
	}
	f.add(name+"reserved to requested after Trim", reserved, float64(f.p.Stats().ReservedBytes.Current), requested)
	f.add(name+"resident to requested after Trim", bound, float64(residentOf(f.p.Snapshot())), requested)
}

func (f *poolFragments) end() { closePool(f.p) }

func (f *poolFragments) add(work string, bound, bytes float64, requested uint64) {
	f.b.add(result{Work: work, Ours: bytes / (1 << 20), Unit: "MiB", Ratio: bytes / float64(requested), Bound: bound})
}

// residentOf sums the pages of a pool's segments that are in memory.
func residentOf(s *memmgr.Snapshot) (bytes uint64) {
	for _, segment := range s.Segments {
		states := make([]byte, segment.Size/fragmentationPage)
		_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, segment.Address, uintptr(segment.Size), uintptr(unsafe.Pointer(&states[0])))
		if errno != 0 {
			exitOn(errno)
		}
		for _, state := range states {
			bytes += uint64(state&1) * fragmentationPage
		}
	}
	return bytes
}

// mallocFragments is malloc. Its memory is the growth of the resident memory of the process.
type mallocFragments struct {
	b      *bench
	s      slots
	before uint64
}

func newMallocFragments(b *bench) *mallocFragments {
	// Without this, malloc could use free memory of earlier works, which would not be counted.
	mallocTrim()
	debug.FreeOSMemory()
	return &mallocFragments{b: b, s: newSlots(fragmentationSlots), before: residentSet()}
}

func (f *mallocFragments) replace(slot int, size uint32) unsafe.Pointer {
	m, at := peer{}, unsafe.Slice(f.s.at, f.s.n)
	one := slots{&at[slot], 1}
	if size == 0 {
		m.clear(one)
		return nil
	}
	m.replace(one, []uint32{0}, []uint32{size})
	return at[slot]
}

func (f *mallocFragments) note(state string, _ float64, requested uint64) {
	for _, when := range []string{"", " after malloc_trim"} {
		if when != "" {
			mallocTrim()
		}
		bytes := float64(residentSet()) - float64(f.before)
		f.b.add(result{Work: "  malloc, " + state + ": resident to requested" + when, Ours: bytes / (1 << 20), Unit: "MiB", Ratio: bytes / float64(requested)})
	}
}

func (f *mallocFragments) end() { f.s.free() }

// residentSet is the resident memory of the process in bytes.
func residentSet() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	exitOn(err)
	var size, resident uint64
	_, err = fmt.Sscan(string(text), &size, &resident)
	exitOn(err)
	return resident * uint64(os.Getpagesize())
}
