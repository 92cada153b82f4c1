// Package share lets several processes of one machine use the same array memory without copies. Arrays
// in memory of package segment are shared by reference, and the reference count spans the processes. On
// 386 and on other systems than Linux, Listen and Dial fail with errors.ErrUnsupported.
// docs/sharing.md compares its guarantees with those of the other ways to exchange arrays.
//
// A [Server] listens on a Unix socket and publishes arrays under names:
//
//	server, err := share.Listen(ctx, "frames", share.Options{})
//	err = server.Publish(ctx, "frame", frame)
//
// Another process connects and opens them:
//
//	peer, err := share.Dial(ctx, "frames", share.Options{})
//	frame, err := peer.Attach(ctx, "frame")
//	defer frame.Release()
//
// [Server.Export] makes a [Handle], which can be sent over any channel and opened once ([Peer.Open],
// [Server.Open]). The opened array is an ordinary usmarray.Array. Views, strides and offsets are kept, and read-only arrays stay read-only.
//
// # Memory
//
// Whole segments are shared. A process receives the descriptor of a segment once. Each further array in
// that segment is described by about a hundred bytes. The receiver maps the segment once, and keeps the
// mapping while arrays in it are open and for [Options].Idle after that.
//
// A process that has one array of a segment can read the whole segment. It can also write it if the
// audience is segment.PeersWrite. Therefore use a separate pool for memory that some admitted processes
// must not see.
//
// Device memory of GPUs is shared by handles of the driver, if the driver and the SYCL library support
// that. The receiver sets [Options].Queue. Memory outside of segments cannot be shared (ErrNotShared).
// Copy such an array into memory of package segment (usmarray.Array.Copy).
//
// # Ownership
//
// The process that allocated the memory is its maker. Each array that another process opens has a lease. A
// lease holds a reference of the buffer in the maker. It begins with Export or Attach. It ends
//
//   - when the last reference of the opened array is released. This is reported in the background, usually
//     within a few milliseconds;
//   - when the process that holds it ends for any reason. This is detected within a second;
//   - if the handle is not opened: after [Options].Unopened, by [Server.Revoke], when the server is closed,
//     or when the only process that may open it has ended;
//   - when the connection ends because of a protocol violation.
//
// [Peer.Close] does not end leases: opened arrays stay valid until they are released. The memory returns to
// its pool when all its leases have ended and the maker has released its references.
//
// If the maker ends first, opened arrays stay valid. As long as the maker lives, it makes the handles for
// processes that pass its arrays on ([Server.Export]), so that no lease depends on a process in between.
// After its end, each process that has an array open can export and publish it itself. Forked
// children do not inherit the mappings: the addresses of opened arrays are unmapped there.
//
// # Versions
//
// Each version that [Server.Publish] or [Server.Replace] publishes has a sequence number. A consumer passes
// the number of its last version to [Peer.WaitNewer], which returns the newest version as soon as there is
// one with a higher number. Consumers skip versions that were replaced meanwhile. The producer does not
// wait for consumers.
//
// # Order
//
// Publish, Export and Attach wait for work that is pending on the array. Therefore all earlier writes
// are visible to the process that opens it. [ExportOptions].NoWait moves the wait to the opening. Writes of
// a process before it releases an array are visible to the maker after the end of the lease; the release
// waits for work on the queues of that process. While several processes have an array open, only their own
// messages order their accesses, as between threads.
//
// # Threads and resources
//
// All functions and methods may be called from any goroutine. A connection uses two goroutines, two
// descriptors, one more for each segment of the other process, and a 16 KiB buffer. If handles are opened
// on it, it also uses a page of memory and a descriptor: the maker offers handles on that page, and the
// other process opens them there without a message. A goroutine that waits for an answer reads the socket
// itself, so that a round trip wakes one goroutine on each side.
//
// # Errors
//
// All errors are of type [*OpError]. Use errors.Is with the Err… variables, for example ErrStale,
// ErrNotShared and ErrClosed. An operation that waits also returns the error of its context.
//
// # Security
//
// Processes of other users are refused by the user ID that the kernel reports (SO_PEERCRED), before
// anything is read from them. [Options].Admit replaces that rule. A process that takes the address of a
// server before it starts makes Listen fail, and Dial reports the wrong user.
//
// An admitted process can
//
//   - read each segment that it has an array of, and write it unless the audience is PeersRead. It can do
//     so after the end of its lease too, because it may have kept the descriptor. A read-only array in a
//     PeersWrite segment prevents accidents only;
//   - attach each published array, and open each handle whose bytes it obtains. The bytes contain 128
//     random bits. An altered or truncated handle is refused;
//   - pass on arrays that it has open, without more rights, to processes that the maker admits;
//   - hold leases, and so keep memory from its pool, up to [Options].MaxLeases.
//
// It cannot prevent other processes from being served. Connections (a quarter of [Options].MaxPeers),
// leases, segments, descriptors, waits and queued bytes are limited for each process. The server does not
// wait for a process that does not read, and disconnects a process that violates the protocol. Processes
// of another user can take half of the connections; those of the server's own user can take all.
//
// A process that shares memory can change only the contents of that memory. Segments are sealed against
// shrinking and checked before they are mapped, so that reading them never faults. Array descriptions are
// checked against the segment. Its writes are visible at any time, so copy data before validating it. The
// exception are handles of GPU memory, which are checked by the driver only, and only if there is a queue
// for them. A process that may trace other processes of its user is not restricted by any of this.
package share
