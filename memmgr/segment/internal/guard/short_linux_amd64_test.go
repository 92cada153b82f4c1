//go:build cgo

package guard_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/seccomp"
	"github.com/usmbridge/usmbridge/memmgr/segment/internal/guard/guardtest"
)

func init() {
	roles["short of memory"] = func() {
		t := &testing.T{}
		m := mapped(t, 13)
		r := guarded(t, m)
		cut(t, m, 2)
		// The pages from the fifth on, in one piece, are more than there are.
		length := &seccomp.Argument{N: 1, Test: seccomp.Equals, K: uint32(9 * page)}
		if err := seccomp.Refuse(syscall.SYS_MMAP, length, syscall.ENOMEM); err != nil {
			println("cannot make filters of system calls here:", err.Error())
			os.Exit(skipped)
		}
		m.bytes[4] = 7
		check(guardtest.Sum(m.at(), page) == uint64(page+6) && !r.Lost(), "what is there")
		sum := func(n int) uint64 { return guardtest.Sum(unsafe.Pointer(&m.bytes[n*page]), page) }
		check(sum(4) == 0 && r.Lost(), "the page alone")
		check(sum(5) == 0 && sum(12) == 0, "what is behind it")
		check(sum(3) == 0 && sum(2) == 0 && sum(1) == uint64(page), "what is before it")
	}
}

// skipped is the exit status of a second process that cannot run its role.
const skipped = 77

// If the system lacks pages for all truncated memory, it gets a page for the access.
func TestShortOfMemory(t *testing.T) {
	stderr, err := second("short of memory")
	var end *exec.ExitError
	if errors.As(err, &end) && end.ExitCode() == skipped {
		t.Skip(stderr)
	}
	require.NoError(t, err, stderr)
}
