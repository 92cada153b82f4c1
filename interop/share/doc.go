// Package share lets several processes of one machine use one buffer: arrays in memory of
// package segment are handed over by handle, without a copy, and the reference count spans
// the processes. On other systems than Linux, and on 386, Listen and Dial fail with
// errors.ErrUnsupported.
//
// A [Server] listens on a Unix socket. Others connect with [Dial] and open what it
// publishes ([Server.Publish], [Peer.Attach]), what it made a handle of ([Server.Export],
// [Peer.Open], [Server.Open]), or what either side hands over ([Peer.Give],
// [Peer.Receive]). What they get is a usmarray.Array like any other: views are views,
// read-only stays read-only, and strides and offsets are kept as they were.
//
// # What is shared
//
// The pages of whole segments. A descriptor of a segment goes to each process once, over
// the socket; afterwards arrays in it travel as some hundred bytes: the segment's name, the
// place of the buffer in it, element type, shape, strides, whether it is read-only. The
// other process maps the segment once and keeps the mapping while arrays in it are open,
// and for [Options].Idle after that.
//
// A process that has one array of a segment can read all of the segment, and write it
// where its audience is segment.PeersWrite. So a pool is for one audience, and memory that
// not every admitted process may see belongs in a pool of its own.
//
// Device memory of GPUs is shared by handles that its driver makes (segment's Segment.Handle),
// which travel in the place of descriptors, where driver and SYCL library have them: whole
// segments, multiples of 2 MiB, so that nothing beside them is seen. Who opens it needs
// [Options].Queue on the device; a view that is read-only is so by agreement alone. All else
// is as above, but that the memory is the driver's: whether it outlives its maker is not ours
// to promise.
//
// Memory that lies in no segment cannot be mapped by others (ErrNotShared), and goes by value
// where [Options].CopyInto asks for that.
//
// # Who frees
//
// The process that allocated, when nobody uses the memory any more, in any process. Each
// array that another process has is a lease, which holds references of the buffer, so
// that it stays, and is not put to sleep either (memmgr.Pool.Sleep gives a HeldError). It
// begins when the handle is made, or when the array is handed over or attached, and is over
//
//   - when the last reference of the opened array is released; that is told in the
//     background, many at a time, within a few milliseconds,
//   - when the process that holds it ends, however it ends: its socket tells that, and a
//     pidfd, since a child that it forked may hold the socket open; within a second.
//     (Who dials a server that is gone, and whose child holds its listening socket, gets
//     ErrDied; nobody else can listen at that address until the child is gone too,)
//   - for a handle that nobody opened: after [Options].Unopened, by [Server.Revoke], when its
//     maker closes, or when the process that alone may open it is gone,
//   - when the connection ends otherwise. A process that closes it by [Peer.Close] keeps it
//     until its arrays are released; one that breaks the protocol loses its leases.
//
// A handle is opened without a message to its maker where the receiver opened the last one in
// that segment and has it mapped: the two share a page, on which the maker offers the handle and
// the receiver takes it in one step. Either the receiver has it then, and the maker finds that
// when it looks, or the maker took the offer back; so a handle is opened once, whoever asks.
//
// The block returns to its pool when all of them are over. The other way round, a maker that ends takes
// nothing away: its segments stay with those who have them mapped, until their last array
// is released. Nothing of this has a name in a file system, unless a socket file was asked
// for, so nothing stays behind after any end of any process. Mappings do not pass to forked
// children: addresses of opened arrays are unmapped there.
//
// While the maker lives, it passes its memory on: Server.Export of an array that was opened here
// asks the maker for the handle. So a lease never depends on a process in between, and a maker
// that opens such a handle has its own memory again. After the end of the maker's process each
// process that has the array open lends it itself, by Export, Give and Publish, under leases of
// its own. Export fails (ErrClosed) until the process has ended: an exit that frees gigabytes of
// memory takes seconds. Device memory of a driver is the exception: it is not lent after its maker's
// end, and goes by value where [Options].CopyInto is set. If only the connection ended, the maker may
// have reused the memory, and Export fails (ErrClosed).
//
// # What is ordered
//
// What was written before an array is exported, handed over or attached is seen by the
// process that opens it: those calls wait for work that is pending on the array
// (usmarray's Synchronize). With [ExportOptions].NoWait making the handle does not wait,
// and opening does. What a process wrote before it released its array is seen by the
// maker when the lease is over, and work of its own queues is waited for before. Between
// processes that have an array at the same time nothing is ordered but by messages of
// theirs: the bytes are guarded by nobody, as between threads.
//
// # What an attacker on the same machine could do
//
// A process of another user can connect. It is refused by the user that the kernel reports
// (SO_PEERCRED), before anything that it sent is read. It can also take an abstract name before a
// server does, or a name in a directory that it may write to: then the server fails to start, and
// Dial reports the wrong user. [Options].Admit replaces that rule on either side. In a user
// namespace the kernel reports one user for all those that have no id there; a process that is of
// this user itself refuses it, unless the namespace has an id for every user.
//
// From Linux 6.16 on, sockets take no descriptors before the process on the other side is admitted
// (SO_PASSRIGHTS). Older kernels take them, and closing them can take as long as their sender
// wants (a TCP socket with SO_LINGER). This is done in the background. A server does it for 64
// refused connections at a time, and accepts no others meanwhile; its Close waits for up to a
// second. A process that has dialled 64 such listeners gets ErrLimit from Dial until one of these
// connections is closed.
//
// An admitted process: read, and unless the audience is PeersRead write, all of each
// segment that it has an array of, at any time, even after its lease is over, since it may
// have kept the descriptor. A read-only array in a PeersWrite segment protects from
// accidents alone. Attach whatever is published, and open handles that it gets hold of: the
// bytes of a handle are the right to open it, once, and they hold 128 random bits that
// nobody guesses; an altered one is refused, and so are truncated and overlong ones. The page
// on which handles are offered to a process is of that process and the maker alone, and what
// takes one is made of the handle's bytes: who writes anything else there takes nothing, and ends
// nobody's lease. Pass on
// what it holds a lease of, as it is and not more to be written, to whom this process admits.
// Hold leases and keep memory from its pool, up to [Options].MaxLeases. It cannot keep others from
// being served: each has bounds of its own on connections (a quarter of [Options].MaxPeers),
// leases, segments, descriptors and queued bytes, nothing waits for one that does not read, and
// what breaks the protocol is cut off. Several processes of the server's own user together can take
// all connections; those of any other user can take half.
//
// A process that lends: nothing but what is in its memory. Segments are sealed against
// shrinking, and looked at before they are mapped, so reading them never faults; a
// description that reaches beyond its segment is refused, and so is a list of names that does
// not end. Handles of GPU memory are the exception: they are the driver's to look into, and go
// there only where there is a queue on such a device. What it writes while the other reads is seen, so whatever must be checked must be
// copied first.
//
// A process of the same user that may trace others needs none of this.
//
// # Other interfaces of this kind
//
// Level Zero's zeMemGetIpcHandle and zeMemOpenIpcHandle, and SYCL's
// sycl_ext_oneapi_inter_process_communication (get, open, close), hand over one allocation as
// opaque bytes, and leave to the program what a lease does here: who frees first, who tells
// whom, what happens when one dies. In their words:
//
//	here                          Level Zero                  SYCL
//	Server.Export, Handle.Bytes   zeMemGetIpcHandle           ipc::memory::get
//	Peer.Open                     zeMemOpenIpcHandle          ipc::memory::open
//	the array's last Release      zeMemCloseIpcHandle         ipc::memory::close
//	the lease's end               zeMemPutIpcHandle           ipc::memory::put
//
// A handle of theirs is opened as often as one likes and exposes the allocation's whole
// pages; one of ours is opened once and exposes the segment. Their memory must not be freed
// before the last close, which nobody checks; here it is not.
//
// # Threads and resources
//
// Everything may be used from any goroutine. What waits for an answer reads the socket
// itself, so that a hand-over wakes one goroutine on each side and takes little longer than
// a message and its reply, whatever the size of the array; what the other process sends
// unasked just after that is read within two milliseconds. A connection costs two goroutines that sleep,
// two descriptors, one more for each segment of the other process, and a 16 KiB buffer; one by
// which handles are opened a page and a descriptor more. A
// timer looks four times a second, while somebody is connected, for what is over.
package share
