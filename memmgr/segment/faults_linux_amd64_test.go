package segment_test

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/stretchr/testify/require"

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

// Jumps of the kernel's filters.
const (
	equals = 0x15 // the argument is k
	hasBit = 0x45 // the argument has a bit of k
)

// refuse has the kernel answer a system call with an error where its argument is as
// said: in this process from here on.
func refuse(t faultTest, call uint32, argument int, test uint16, k uint32, answer syscall.Errno) {
	const (
		prctlNoNewPrivileges = 38
		seccomp, setFilter   = 317, 1
		allThreads           = 1
		load, ret            = 0x20, 0x06
		refuse, allow        = 0x00050000, 0x7fff0000
	)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	type instruction struct {
		code         uint16
		onYes, onNot uint8
		k            uint32
	}
	filter := []instruction{
		{load, 0, 0, 0}, // the number of the call
		{equals, 0, 3, call},
		{load, 0, 0, uint32(16 + 8*argument)}, // the lower half
		{test, 0, 1, k},
		{ret, 0, 0, refuse | uint32(answer)},
		{ret, 0, 0, allow},
	}
	program := struct {
		n      uint16
		filter *instruction
	}{uint16(len(filter)), &filter[0]}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prctlNoNewPrivileges, 1, 0, 0, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(seccomp, setFilter, allThreads, uintptr(unsafe.Pointer(&program)))
	}
	if errno != 0 {
		t.Logf("cannot make filters of system calls here: %v", errno)
		os.Exit(0)
	}
}

func noMemoryFiles(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	refuse(t, segment.SysMemfdCreate, 1, hasBit, 1, syscall.ENOSYS)
	refused(t, r, 1, errors.ErrUnsupported)
	_, err := segment.NewHost(segment.PeersWrite)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "memfd_create")
}

func noNoexec(t faultTest) {
	refuse(t, segment.SysMemfdCreate, 1, hasBit, 8, syscall.EINVAL)
	r := hostOf(t, segment.PeersWrite)
	b, err := r.Allocate(memmgr.Request{Size: 1})
	require.NoError(t, err)
	r.Free(b)
}

func noFutureWrite(t faultTest) {
	refuse(t, syscall.SYS_FCNTL, 2, hasBit, 0x10, syscall.EINVAL)
	_, err := segment.NewHost(segment.PeersRead)
	require.True(t, t.unsupported(err))
	require.ErrorContains(t, err, "F_SEAL_FUTURE_WRITE")
	r := hostOf(t, segment.PeersWrite)
	b, err := r.Allocate(memmgr.Request{Size: 1})
	require.NoError(t, err)
	r.Free(b)
}

func noSeals(t faultTest) {
	r := hostOf(t, segment.PeersRead)
	refuse(t, syscall.SYS_FCNTL, 1, equals, 1033, syscall.EPERM)
	refused(t, r, 1, syscall.EPERM)
	_, err := segment.NewHost(segment.PeersWrite)
	require.ErrorIs(t, err, syscall.EPERM)
}

func noMapping(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b, err := r.Allocate(memmgr.Request{Size: 1})
	require.NoError(t, err)
	s, _, _ := segment.Find(b.Address, 1)
	f, err := s.File()
	require.NoError(t, err)
	refuse(t, syscall.SYS_MMAP, 3, equals, syscall.MAP_SHARED|syscall.MAP_FIXED, syscall.ENOMEM)
	refused(t, r, 1, memmgr.ErrOutOfMemory, syscall.ENOMEM)
	before := holding(t)
	_, err = segment.Map(attachment(s, f))
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Equal(t, before, holding(t))
	f.Close()
	r.Free(b)
}

func noAdvice(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b, err := r.Allocate(memmgr.Request{Size: 1})
	require.NoError(t, err)
	s, _, _ := segment.Find(b.Address, 1)
	f, err := s.File()
	require.NoError(t, err)
	refuse(t, syscall.SYS_MADVISE, 2, equals, syscall.MADV_DONTFORK, syscall.EINVAL)
	before := holding(t)
	_, err = segment.Map(attachment(s, f))
	require.ErrorIs(t, err, syscall.EINVAL)
	require.Equal(t, before, holding(t))
	f.Close()
	r.Free(b)
}

// Memory that cannot be unmapped stays, is told, and stays counted.
func noUnmapping(t faultTest) {
	r := hostOf(t, segment.PeersWrite)
	b, err := r.Allocate(memmgr.Request{Size: 11 << 12})
	require.NoError(t, err)
	_, before := segment.InUse()
	maps := holding(t).mappings
	refuse(t, syscall.SYS_MUNMAP, 1, equals, 11<<12, syscall.ENOMEM)
	told := logged(func() { r.Free(b) })
	require.Contains(t, told, "stay mapped")
	mappings, descriptors := segment.InUse()
	require.Equal(t, maps, mappings)
	require.Equal(t, before-1, descriptors)
	blocks, bytes := r.InUse()
	require.Zero(t, blocks)
	require.Zero(t, bytes)
	t.Logf("played") // with a mapping too many
	os.Exit(0)
}
