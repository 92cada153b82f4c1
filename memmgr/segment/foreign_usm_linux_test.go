//go:build cgo

package segment_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

// USM over foreign memory: kernels and copies of the runtime can use it, and truncated parts are zeros for its threads
// too. Afterwards the USM is freed as usual.
func TestForeignUSM(t *testing.T) {
	rt := onOpenCLCPU(t)
	nothingStays(t)
	q := rt.DefaultQueue()
	const pages = 512
	for _, kind := range []syclobj.USMKind{syclobj.USMShared, syclobj.USMHost, syclobj.USMDevice} {
		t.Run(kind.String(), func(t *testing.T) {
			nothingStays(t)
			name, f := named(t, pages*4096)
			m := live(t, segment.Foreign{Name: name, Offset: 100, Size: pages*4096 - 100, Queue: q, Kind: kind})
			require.Equal(t, kind, m.Place().Kind())
			got := make([]byte, m.Size())
			require.NoError(t, q.Read(got, m.Data()))
			require.Equal(t, pattern(pages * 4096)[100:], got)
			require.NoError(t, q.Write(m.Data(), []byte("by the queue")))
			text := make([]byte, 12)
			require.NoError(t, testenv.ErrorOf(f.ReadAt(text, 100)))
			require.Equal(t, "by the queue", string(text))
			require.NoError(t, m.Err())

			require.NoError(t, f.Truncate(4096))
			e, err := q.Fill(unsafe.Add(m.Data(), 8192-100), []byte{9}, (pages-2)*4096) // on threads of the driver
			require.NoError(t, err)
			require.NoError(t, e.Wait(context.Background()))
			e.Close()
			require.ErrorIs(t, m.Err(), segment.ErrTruncated)
			require.NoError(t, q.Read(got, m.Data()))
			require.Equal(t, "by the queue", string(got[:12]))
			require.NoError(t, m.Close())
		})
	}
	testenv.Must(memmgr.New(memmgr.USM(q, syclobj.USMShared), memmgr.Request{Size: pages * 4096}))(t).Release()
}

func init() {
	// Maps the named memory, then loads the driver and runs a kernel, and then reads truncated
	// memory from Go without a call of Err in between.
	peers["driver comes later"] = func(k talk) {
		t := faultTest{}
		m := testenv.Must(segment.MapForeign(segment.Foreign{Name: k.hear(), Size: 8192}))(t)
		rt := testenv.Must(syclobj.Open())(t)
		q := rt.DefaultQueue()
		b := testenv.Must(memmgr.New(memmgr.USM(q, syclobj.USMShared), memmgr.Request{Size: 1 << 20}))(t)
		e := testenv.Must(q.Fill(b.Data(), []byte{9}, 1<<20))(t)
		require.NoError(t, e.Wait(context.Background()))
		e.Close()
		fmt.Println("computed")
		k.hear()
		sum := 0
		for _, v := range shown(m) {
			sum += int(v)
		}
		k.say("%d %v", sum, m.Err() != nil)
	}
}

// A driver that starts after the guard was installed does not disable it.
func TestForeignBeforeTheDriver(t *testing.T) {
	require.NoError(t, onOpenCLCPU(t).Close())
	name, f := named(t, 8192)
	p := startPeer(t, "driver comes later")
	require.Equal(t, "computed", p.ask("%s", name))
	require.NoError(t, os.Truncate(f.Name(), 4096))
	sum := 0
	for _, v := range pattern(4096) {
		sum += int(v)
	}
	require.Equal(t, fmt.Sprint(sum, true), p.ask("read"))
	require.NoError(t, p.end())
}
