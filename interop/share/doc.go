// Package share lets several processes of one machine use one buffer: arrays in memory of
// package segment are handed over by handle, without a copy, and the reference count spans
// the processes. On other systems than Linux, and on 386, Listen and Dial fail with
// errors.ErrUnsupported. docs/sharing.md has the guarantees in one table.
//
// A [Server] listens on a Unix socket. Other processes connect with [Dial] and open the arrays that it
// publishes ([Server.Publish], [Peer.Attach], [Peer.WaitNewer]), the handles that it made
// ([Server.Export], [Peer.Open], [Server.Open]), and arrays that either side hands over ([Peer.Give],
// [Peer.Receive]). The result is an ordinary usmarray.Array: views stay views, read-only arrays stay
// read-only, and strides and offsets are kept.
//
// # What is shared
//
// The pages of whole segments are shared. Each process receives the descriptor of a segment once, over
// the socket. Afterwards an array in it takes some hundred bytes: the ID of the segment, the place of
// the buffer in it, element type, shape, strides, and whether it is read-only. The other process maps
// the segment once. It keeps the mapping while arrays in it are open, and for [Options].Idle after that.
//
// A process that has one array of a segment can read the whole segment, and can write it if its
// audience is segment.PeersWrite. Therefore a pool is for one audience. Use a pool of its own for memory
// that some admitted processes must not see.
//
// Device memory of GPUs is shared by handles of the driver (Segment.Handle of package segment) instead
// of descriptors, if the driver and the SYCL library have them. Whole segments are shared, in multiples
// of 2 MiB, so that no other memory is exposed. The process that opens such an array needs
// [Options].Queue on the device. A read-only view of it is read-only by agreement only. The driver
// decides whether the memory outlives its maker.
//
// Memory outside of segments cannot be mapped by other processes (ErrNotShared). With
// [Options].CopyInto it is sent by value.
//
// # When memory is freed
//
// The process that allocated the memory frees it when no process uses it any more. Each array of another
// process is a lease. A lease holds references of the buffer, so that the memory stays and is not put
// to sleep (memmgr.Pool.Sleep returns a HeldError). It begins when the handle is made, or when the array
// is handed over or attached. It ends
//
//   - when the last reference of the opened array is released. This is reported in the background,
//     in batches, within a few milliseconds, unless the maker finds it on the shared page before.
//   - when the process that holds it ends, in any way. The socket and a pidfd report this within a
//     second; the pidfd is needed because a forked child may hold the socket open. (A process that
//     dials a server that has ended, but whose child still holds the listening socket, gets ErrDied. No
//     other process can listen at that address before the child has ended.)
//   - for a handle that was not opened: after [Options].Unopened, by [Server.Revoke], when its maker
//     closes, or when the only process that may open it has ended.
//   - when the connection ends in another way. After [Peer.Close], it ends when the arrays of that
//     process are released. A process that breaks the protocol loses its leases.
//
// If the receiver opened the last handle of the segment and has the segment mapped, it opens a handle
// without a message to the maker: both share a page on which the maker offers the handle and the
// receiver takes it, in one atomic step. So a handle is opened once, whichever process asks.
//
// The block returns to its pool when all leases have ended. If the maker ends first, its segments stay
// with the processes that have them mapped, until their last array is released. No names are left in a
// file system, unless a socket file was requested. Mappings do not pass to forked children: the
// addresses of opened arrays are unmapped there.
//
// While the maker lives, it passes its memory on: Server.Export of an array that was opened here asks
// the maker for the handle. So a lease never depends on a process in between, and a maker that opens
// such a handle has its own memory again. After the end of the maker's process, each process that has
// the array open lends it itself, by Export, Give and Publish, with leases of its own. Export fails
// (ErrClosed) until that process has ended: an exit that frees gigabytes takes seconds. Device memory of
// a driver is an exception: after the end of its maker it is not lent, and is sent by value if
// [Options].CopyInto is set. If only the connection ended, the maker may have reused the memory, and
// Export fails (ErrClosed).
//
// # Versions
//
// Each version that [Server.Publish] or [Server.Replace] publishes has a sequence number. A consumer
// of a stream calls [Peer.WaitNewer] with the number of the last version that it has. The call returns
// the newest version as soon as there is one with a higher number. Versions that were replaced in the
// meantime are skipped, and the producer does not wait for consumers.
//
// # Order
//
// What was written before an array is exported, handed over or attached is visible to the process that
// opens it: these calls wait for work that is pending on the array. Of memory that was exported to
// another library or imported, that is all work of its queue (Synchronize of usmarray), and of other
// memory the recorded work (Buffer.SetPending). With [ExportOptions].NoWait, opening waits instead of
// exporting. What a process wrote before it released
// its array is visible to the maker when the lease has ended; work on the process's own queues is
// waited for before. Between processes that have an array at the same time, only their own messages
// order accesses, as between threads.
//
// # Attacks by processes of the same machine
//
// A process of another user can connect. It is refused by the user that the kernel reports
// (SO_PEERCRED), before anything that it sent is read. It can also take an abstract name before a
// server does, or a name in a directory that it may write to: then the server fails to start, and
// Dial reports the wrong user. [Options].Admit replaces that rule on either side. In a user
// namespace the kernel reports one user for all users that have no id there. A process that is itself
// of this user refuses it, unless the namespace has an id for every user.
//
// From Linux 6.16 on, sockets accept no descriptors before the process on the other side is admitted
// (SO_PASSRIGHTS). Older kernels accept them, and closing them can take as long as their sender
// wants (a TCP socket with SO_LINGER). This is done in the background. A server does it for at most 64
// refused connections at a time, and accepts no others meanwhile; its Close waits for up to a
// second. A process that has dialled 64 such listeners gets ErrLimit from Dial until one of these
// connections is closed.
//
// An admitted process can
//
//   - read each segment that it has an array of, and write it unless the audience is PeersRead, at any
//     time, even after its lease has ended, because it may have kept the descriptor. A read-only array
//     in a PeersWrite segment prevents accidents only.
//   - attach every published array, and open handles that it obtains. The bytes of a handle are the right
//     to open it, once. They contain 128 random bits. An altered, truncated or overlong handle is
//     refused. The page on which handles are offered is shared with one process only, and taking a handle
//     needs its bytes, so that other writes to the page have no effect.
//   - pass on arrays of which it holds a lease, without more rights, to processes that this process
//     admits.
//   - hold leases, and so keep memory from its pool, up to [Options].MaxLeases.
//
// It cannot keep other processes from being served. Each process has bounds of its own on connections
// (a quarter of [Options].MaxPeers), leases, segments, descriptors, waits and queued bytes; nothing
// waits for a process that does not read; a process that breaks the protocol is disconnected. Several
// processes of the server's own user together can take all connections, those of any other user half.
//
// A process that lends memory can only affect the contents of that memory. Segments are sealed against
// shrinking and checked before they are mapped, so that reading them never faults. A description that
// exceeds its segment is refused, and so is a list of names that does not end. Handles of GPU memory are
// an exception: the driver checks them, and they reach it only if there is a queue on such a device.
// Data that the lender writes while it is read is visible. Copy data before you check it.
//
// A process of the same user that may trace other processes needs none of this.
//
// # Similar interfaces
//
// Level Zero's zeMemGetIpcHandle and zeMemOpenIpcHandle, and SYCL's
// sycl_ext_oneapi_inter_process_communication (get, open, close), hand over one allocation as
// opaque bytes. The program must do what a lease does here: decide which process frees first, report
// releases, and handle the end of a process. The corresponding operations are
//
//	here                          Level Zero                  SYCL
//	Server.Export, Handle.Bytes   zeMemGetIpcHandle           ipc::memory::get
//	Peer.Open                     zeMemOpenIpcHandle          ipc::memory::open
//	the array's last Release      zeMemCloseIpcHandle         ipc::memory::close
//	the lease's end               zeMemPutIpcHandle           ipc::memory::put
//
// Their handles can be opened any number of times and expose the whole pages of the allocation; a handle
// here is opened once and exposes the segment. Their memory must not be freed before the last close,
// which is not checked; here the lease ensures it.
//
// # Threads and resources
//
// Everything may be used from any goroutine. A goroutine that waits for an answer reads the socket
// itself, so that a hand-over wakes one goroutine on each side and takes little longer than a message
// and its reply, whatever the size of the array. Other messages that arrive just after that are read
// within two milliseconds. A connection costs two sleeping goroutines, two descriptors, one more for
// each segment of the other process, and a 16 KiB buffer. A connection by which handles are opened costs
// one page and one descriptor more. A timer checks for ended leases four times a second while a process
// is connected.
package share
