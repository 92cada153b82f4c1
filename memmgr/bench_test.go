package memmgr_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

func BenchmarkPoolOneSize(b *testing.B) {
	for _, size := range []uintptr{64, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := newHostPool(b)
			memmgr.RecordStacks(0)
			b.ReportAllocs()
			for b.Loop() {
				buf, err := memmgr.New(p, memmgr.Request{Size: size})
				if err != nil {
					b.Fatal(err)
				}
				buf.Release()
			}
		})
	}
}

func BenchmarkPoolParallel(b *testing.B) {
	p := newHostPool(b)
	memmgr.RecordStacks(0)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			buf, err := memmgr.New(p, memmgr.Request{Size: 4096})
			if err != nil {
				b.Fatal(err)
			}
			buf.Release()
		}
	})
}

// BenchmarkPoolReplace replaces random blocks among many live ones.
func BenchmarkPoolReplace(b *testing.B) {
	for _, live := range []int{1000, 10000, 1000000} {
		b.Run(fmt.Sprint(live), func(b *testing.B) {
			p := memmgr.NewPool(memtest.NewSimulated())
			memmgr.RecordStacks(0)
			rng := rand.New(rand.NewPCG(1, 1))
			buffers := make([]memmgr.Buffer, live)
			where, sizes := make([]int, 1<<16), make([]uintptr, 1<<16)
			for i := range where {
				where[i], sizes[i] = rng.IntN(live), uintptr(8+rng.IntN(4089))
			}
			replace := func(k int, size uintptr) {
				if buffers[k].Valid() {
					buffers[k].Release()
				}
				var err error
				if buffers[k], err = memmgr.New(p, memmgr.Request{Size: size}); err != nil {
					b.Fatal(err)
				}
			}
			for k := range buffers {
				replace(k, sizes[k%len(sizes)])
			}
			i := 0
			for b.Loop() {
				replace(where[i], sizes[i])
				i = (i + 1) % len(where)
			}
			b.StopTimer()
			for _, buffer := range buffers {
				buffer.Release()
			}
			if err := p.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
