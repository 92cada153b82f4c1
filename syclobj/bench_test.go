package syclobj_test

import (
	"context"
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/syclobj"
	"github.com/usmbridge/usmbridge/syclobj/sycltest"
)

// BenchmarkPointerCheck compares the complete check of a foreign pointer (kind of the first and the last
// byte, device, context, place) from Go with the same from C; the difference is one cgo call and the Go
// side of the place.
func BenchmarkPointerCheck(b *testing.B) {
	rt := openReal(b)
	q := rt.DefaultQueue()
	const n = 1 << 20
	p := testenv.Must(q.Alloc(syclobj.USMDevice, n, 0))(b)
	defer func() { require.NoError(b, syclobj.Free(p)) }()
	end := unsafe.Add(p, n)
	ctx := q.Context()
	measure := func(name string, check func() (*syclobj.Place, error)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				place, err := check()
				if err != nil {
					b.Fatal(err)
				}
				place.Release()
			}
		})
	}
	b.Run("context/C", func(b *testing.B) { require.Zero(b, sycltest.CheckInC(ctx, p, end, b.N)) })
	measure("context/Go", func() (*syclobj.Place, error) { return placeOf(rt, ctx, nil, p, end) })
	measure("queue/Go", func() (*syclobj.Place, error) { return placeOf(rt, nil, q, p, end) })
	measure("filter/Go", func() (*syclobj.Place, error) {
		d, err := rt.Device("opencl:cpu:0")
		if err != nil {
			return nil, err
		}
		return placeOf(rt, d.DefaultContext(), nil, p, end)
	})
	b.Run("dlpack/C", func(b *testing.B) { require.Zero(b, sycltest.ImportInC(0, p, end, b.N)) })
	measure("dlpack/Go", func() (*syclobj.Place, error) { return dlpackPlace(rt, 0, p, end) })
	b.Run("empty cgo call", func(b *testing.B) {
		for b.Loop() {
			sycltest.EmptyCall()
		}
	})
}

// BenchmarkAlloc allocates and frees by size and kind.
func BenchmarkAlloc(b *testing.B) {
	rt := openReal(b)
	for _, q := range []*syclobj.Queue{rt.DefaultQueue(), rt.HostQueue()} {
		for _, size := range []uintptr{4 << 10, 64 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", q.Device().FilterString(), size>>10), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p, err := q.Alloc(syclobj.USMDevice, size, 0)
					if err != nil {
						b.Fatal(err)
					}
					if err := syclobj.Free(p); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSubmit measures a submission of a small copy with its wait, and of a
// barrier.
func BenchmarkSubmit(b *testing.B) {
	q := openReal(b).DefaultQueue()
	p := testenv.Must(q.Alloc(syclobj.USMDevice, 4096, 0))(b)
	defer func() { require.NoError(b, syclobj.Free(p)) }()
	ctx := context.Background()
	for name, submit := range map[string]func() (*syclobj.Event, error){
		"memcpy":  func() (*syclobj.Event, error) { return q.Memcpy(p, unsafe.Add(p, 2048), 2048) },
		"barrier": func() (*syclobj.Event, error) { return q.Barrier() },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e, err := submit()
				if err != nil {
					b.Fatal(err)
				}
				if err := e.Wait(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
