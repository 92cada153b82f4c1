//go:build unix

package transfer

import "syscall"

// nonblock prevents open from waiting for a writer if the path became a FIFO after the check. It
// has no effect on regular files.
const nonblock = syscall.O_NONBLOCK

// errFault is returned by read and write if the kernel cannot access the memory.
const errFault = syscall.EFAULT
