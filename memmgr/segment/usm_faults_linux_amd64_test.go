//go:build cgo && linux

package segment_test

import (
	"os"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/seccomp"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/syclobj"
)

func init() { peers["lost USM"] = func(talk) { lostUSM(faultTest{}) } }

// lostUSM frees shared USM while anonymous memory cannot be mapped over addresses.
func lostUSM(t faultTest) {
	rt := testenv.Must(syclobj.Open())(t)
	r := testenv.Must(segment.NewUSM(rt.DefaultQueue(), syclobj.USMShared, segment.PeersWrite))(t)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 10000}))(t)
	s, _, _ := segment.Find(b.Address, 1)
	f := testenv.Must(s.File())(t)
	a := attachment(s, f)
	a.Queue, a.Kind = rt.DefaultQueue(), syclobj.USMDevice
	m := testenv.Must(segment.Map(a))(t)
	f.Close()

	const putBack = syscall.MAP_PRIVATE | syscall.MAP_ANON | syscall.MAP_FIXED | syscall.MAP_NORESERVE
	refuse(t, syscall.SYS_MMAP, 3, seccomp.Equals, putBack, syscall.ENOMEM)
	log := logged(func() {
		r.Free(b)
		require.NoError(t, m.Close())
	})
	require.Contains(t, log, "are lost")
	require.Contains(t, log, "shared memory on opencl:cpu:0")
	require.Contains(t, log, "device memory on opencl:cpu:0")
	mappings, descriptors := segment.InUse()
	require.Equal(t, 4, mappings, "they are still there")
	require.Zero(t, descriptors)
	blocks, bytes := r.InUse()
	require.Zero(t, blocks)
	require.Zero(t, bytes)
	below, ok := memmgr.As[interface{ InUse() (blocks, bytes int64) }](r.Upstream())
	require.True(t, ok)
	blocks, _ = below.InUse()
	require.EqualValues(t, 1, blocks, "USM that was not freed")
	place, err := rt.PlaceOf(nil, rt.DefaultQueue(), b.Address, b.Address+1) // still the runtime's
	require.NoError(t, err)
	place.Release()
	t.Logf("done")
	os.Exit(0)
}
