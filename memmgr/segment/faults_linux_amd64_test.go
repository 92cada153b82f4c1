package segment_test

import (
	"errors"
	"os"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/seccomp"
	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

func init() {
	for name, fault := range map[string]func(faultTest){
		"no memory files":          noMemoryFiles,
		"a kernel before 6.3":      noNoexec,
		"a kernel before 5.1":      noFutureWrite,
		"seals are refused":        noSeals,
		"mapping is refused":       noMapping,
		"MADV_DONTFORK is refused": noAdvice,
		"unmapping is refused":     noUnmapping,
	} {
		faults[name] = fault
		peers["fault: "+name] = func(talk) { inFaultTest(fault) }
	}
}

// refuse makes the kernel return an error for a system call with a certain argument, in this process from now on.
func refuse(t faultTest, call uint32, argument int, test uint16, k uint32, answer syscall.Errno) {
	if err := seccomp.Refuse(call, &seccomp.Argument{N: argument, Test: test, K: k}, answer); err != nil {
		t.Logf("cannot make filters of system calls here: %v", err)
		os.Exit(0)
	}
}

func noMemoryFiles(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	refuse(t, uint32(segment.SysMemfdCreate), 1, seccomp.HasBit, 1, syscall.ENOSYS)
	refused(t, r, 1, errors.ErrUnsupported)
	testenv.Failed(t, testenv.ErrorOf(segment.NewHost(segment.PeersWrite)), errors.ErrUnsupported, "memfd_create")
}

func noNoexec(t faultTest) {
	refuse(t, uint32(segment.SysMemfdCreate), 1, seccomp.HasBit, 8, syscall.EINVAL)
	r := hostOf(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 1}))(t)
	r.Free(b)
}

func noFutureWrite(t faultTest) {
	refuse(t, syscall.SYS_FCNTL, 2, seccomp.HasBit, 0x10, syscall.EINVAL)
	_, err := segment.NewHost(segment.PeersRead)
	require.True(t, t.unsupported(err))
	require.ErrorContains(t, err, "F_SEAL_FUTURE_WRITE")
	r := hostOf(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 1}))(t)
	r.Free(b)
}

func noSeals(t faultTest) {
	r := hostOf(t, segment.PeersRead)
	refuse(t, syscall.SYS_FCNTL, 1, seccomp.Equals, 1033, syscall.EPERM)
	refused(t, r, 1, syscall.EPERM)
	require.ErrorIs(t, testenv.ErrorOf(segment.NewHost(segment.PeersWrite)), syscall.EPERM)
}

func noMapping(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 1}))(t)
	s, _, _ := segment.Find(b.Address, 1)
	f := testenv.Must(s.File())(t)
	refuse(t, syscall.SYS_MMAP, 3, seccomp.Equals, syscall.MAP_SHARED|syscall.MAP_FIXED, syscall.ENOMEM)
	refused(t, r, 1, memmgr.ErrOutOfMemory, syscall.ENOMEM)
	before := holding(t)
	require.ErrorIs(t, testenv.ErrorOf(segment.Map(attachment(s, f))), syscall.ENOMEM)
	require.Equal(t, before, holding(t))
	f.Close()
	r.Free(b)
}

func noAdvice(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 1}))(t)
	s, _, _ := segment.Find(b.Address, 1)
	f := testenv.Must(s.File())(t)
	refuse(t, syscall.SYS_MADVISE, 2, seccomp.Equals, syscall.MADV_DONTFORK, syscall.EINVAL)
	before := holding(t)
	require.ErrorIs(t, testenv.ErrorOf(segment.Map(attachment(s, f))), syscall.EINVAL)
	require.Equal(t, before, holding(t))
	f.Close()
	r.Free(b)
}

// Memory that cannot be unmapped stays mapped, is reported, and stays counted.
func noUnmapping(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b := testenv.Must(r.Allocate(memmgr.Request{Size: 11 << 12}))(t)
	_, before := segment.InUse()
	maps := holding(t).mappings
	refuse(t, syscall.SYS_MUNMAP, 1, seccomp.Equals, 11<<12, syscall.ENOMEM)
	log := logged(func() { r.Free(b) })
	require.Contains(t, log, "stay mapped")
	mappings, descriptors := segment.InUse()
	require.Equal(t, maps, mappings)
	require.Equal(t, before-1, descriptors)
	blocks, bytes := r.InUse()
	require.Zero(t, blocks)
	require.Zero(t, bytes)
	t.Logf("done") // with a mapping too many
	os.Exit(0)
}
