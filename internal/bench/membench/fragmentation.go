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
// sizes. Random blocks are replaced; then half are freed. One byte is written to each page of each block, so that the
// resident memory is measured, not the address space.
const (
	fragmentationLive  = 2 << 30
	fragmentationTurns = 1000000
	fragmentationSlots = 50000 // about 5000 are in use; the mean size is 430 KB
	fragmentationPage  = 4096
)

// fragmented is an allocator under test.
type fragmented struct {
	// replace frees the block of a slot and, unless the size is 0, allocates another one and returns its address.
	replace  func(slot int, size uint32) unsafe.Pointer
	resident func() float64 // the bytes in memory
	trim     func()
}

func (b *bench) fragmentation() {
	p, live := hostPool(), make([]memmgr.Buffer, fragmentationSlots)
	pool, trimmed := fragment(fragmented{func(slot int, size uint32) unsafe.Pointer {
		clearBuffers(live[slot : slot+1])
		if size == 0 {
			return nil
		}
		live[slot] = must(memmgr.New(p, memmgr.Request{Size: uintptr(size)}))
		return live[slot].Data()
	}, func() float64 { return segmentsInMemory(p) }, func() { p.Trim(0) }})
	closePool(p)
	// Without this, malloc could use free memory of earlier works, which would not be counted.
	mallocTrim()
	debug.FreeOSMemory()
	theirs, before := newSlots(fragmentationSlots), residentSet()
	at := unsafe.Slice(theirs.at, theirs.n)
	malloc, afterTrim := fragment(fragmented{func(slot int, size uint32) unsafe.Pointer {
		one := slots{&at[slot], 1}
		if size == 0 {
			peer{}.clear(one)
		} else {
			peer{}.replace(one, []uint32{0}, []uint32{size})
		}
		return at[slot]
	}, func() float64 { return residentSet() - before }, mallocTrim})
	theirs.free()
	b.add(result{
		Work: "resident to requested, half of 2 GiB freed, trimmed", Ours: trimmed, Peer: malloc, Name: "malloc", Unit: "",
		Ratio: trimmed, Bound: 1.3, Note: fmt.Sprintf("before Trim %.3g; malloc after malloc_trim %.3g", pool, afterTrim),
	})
}

// fragment returns the resident memory to the requested bytes after half was freed, before and after trim.
func fragment(user fragmented) (before, after float64) {
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
	user.trim()
	for all := len(live); len(live) > all/2; {
		drop()
	}
	before = user.resident() / float64(requested)
	user.trim()
	after = user.resident() / float64(requested)
	for len(live) > 0 {
		drop()
	}
	return before, after
}

// segmentsInMemory returns the bytes of the pages of the pool's segments that are in memory.
func segmentsInMemory(p *memmgr.Pool) (bytes float64) {
	for _, segment := range p.Snapshot().Segments {
		states := make([]byte, segment.Size/fragmentationPage)
		_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, segment.Address, uintptr(segment.Size), uintptr(unsafe.Pointer(&states[0])))
		if errno != 0 {
			exitOn(errno)
		}
		for _, state := range states {
			bytes += float64(state&1) * fragmentationPage
		}
	}
	return bytes
}

// residentSet returns the resident memory of the process in bytes.
func residentSet() float64 {
	text, err := os.ReadFile("/proc/self/statm")
	exitOn(err)
	var size, resident int
	_, err = fmt.Sscan(string(text), &size, &resident)
	exitOn(err)
	return float64(resident * os.Getpagesize())
}
