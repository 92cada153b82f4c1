//go:build cgo && linux

package segment_test

import (
	"testing"

	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

// BenchmarkFirstAttachOfUSM is [BenchmarkFirstAttach] with USM on both sides.
func BenchmarkFirstAttachOfUSM(b *testing.B) {
	const size = 1 << 30
	rt := onOpenCLCPU(b)
	r := newUSM(b, rt.DefaultQueue(), syclobj.USMDevice, segment.PeersWrite)
	buffer, err := memmgr.New(r, memmgr.Request{Size: size})
	if err != nil {
		b.Fatal(err)
	}
	defer buffer.Release()
	if err := rt.DefaultQueue().Write(buffer.Data(), make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	s, _, f := fileOf(b, buffer)
	a := attachment(s, f)
	a.Queue, a.Kind = rt.DefaultQueue(), syclobj.USMShared
	benchmarkAttach(b, s, f, a)
}
