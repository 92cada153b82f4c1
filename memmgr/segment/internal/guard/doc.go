// Package guard keeps the process alive when it accesses pages of a mapped file that another
// process has truncated. It needs Linux and cgo.
//
// Such an access raises SIGBUS, in Go code, in C, or on a thread of a driver that Go does not know.
// The handler of this package looks the address up in a table of ranges, without a lock. If the
// address is in a guarded range, the handler maps zero pages from there to the end of the range,
// marks the range as lost and returns. The access is then repeated and reads zeros. The handler
// passes every other fault on to the previous handler, so Go still panics and drivers still handle
// their own faults.
//
// The handler stays installed until the process ends. If a driver installs its own handler over it,
// [Keep] installs this one again and passes other faults to the driver's: call Keep from time to
// time. (Package syclobj restores the handlers of before a driver was loaded. A handler that is
// installed on another thread at that moment is lost until Keep.)
//
// SIGBUS has other causes: a page of a sparse file on a full file system, and a page that the
// hardware reports as broken. The handler cannot distinguish them and treats them alike.
//
// The guard does not cover system calls, which fail with EFAULT for such memory, and threads that
// block SIGBUS, where the kernel ends the process without calling a handler.
package guard

import "errors"

// ErrFull is returned by [Add] when the table holds its maximum of 4,096 ranges.
var ErrFull = errors.New("too many guarded ranges")

// Range is a guarded range of addresses, returned by [Add]. Its methods are safe for concurrent use,
// and must not be called after Remove.
type Range struct{ number int32 }
