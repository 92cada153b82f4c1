//go:build unix

package transfer

import "syscall"

// nonblock keeps the opening of a path that became a FIFO from waiting for a writer; on a
// regular file it means nothing.
const nonblock = syscall.O_NONBLOCK

// errFault is what the kernel says of memory that it cannot reach itself.
const errFault = syscall.EFAULT
