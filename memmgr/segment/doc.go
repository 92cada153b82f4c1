// Package segment provides memory that other processes on the machine can map, so that several
// processes use one buffer without a copy.
//
// A [Resource] allocates segments. [NewHost] makes them of host memory, as memory files
// (memfd_create). These have a descriptor and no name, so nothing remains after the processes end,
// even after a crash. [NewUSM] makes them of USM as well, on devices that support it. Put a
// [memmgr.Pool] above a Resource to serve small requests. [Find] returns the segment that contains
// a buffer, and [Segment.File] a descriptor of it. Send the descriptor to the other process over a
// Unix socket, or let a child inherit it. There [Map] maps the segment.
//
//	one process                               another
//	r, err := segment.NewHost(segment.PeersWrite)
//	pool := memmgr.NewPool(r)
//	b, err := memmgr.New(pool, …)
//	s, offset, _ := segment.Find(b.Address(), b.Size())
//	f, err := s.File()          --- f, s.Size(), s.Audience(), offset --->
//	                                          m, err := segment.Map(segment.Attachment{File: f, …})
//
// A peer can access the whole segment, and this package does not track peers. The caller must
// coordinate the use of a buffer, and release it only when no peer needs it.
//
// # Ownership
//
// Memory of a Resource is owned like that of any other resource. The mapping of a peer keeps the
// pages of a segment alive after the process that made it frees the segment or ends. The system
// frees the pages with the last mapping and descriptor. The caller of Map owns the [Mapping].
//
// # Protection from peers
//
// All memory of a Resource has one [Audience], which the kernel enforces by seals. A segment cannot
// be truncated or extended. A segment for [PeersRead] is writable only by the process that made
// it. Peers of [PeersWrite] can write at any time, and can punch holes, which read as zeros: copy
// bytes that must be validated before you read them. Map refuses a descriptor without the seals of
// its audience.
//
// # Unified shared memory
//
// USM of an OpenCL CPU device lies in private pages of the process. A memory file mapped over such
// an allocation replaces these pages. The runtime still treats the memory as USM of its kind, and
// kernels and copies work in it. Other processes map the file as host memory, or over USM of their
// own (Attachment.Queue), in any context and of any kind. The OpenCL and SYCL specifications do
// not guarantee this, so each device and kind is tested before its first use. Where the test
// fails, [NewUSM] returns the reason.
//
// Private pages are mapped under such USM again before it is freed. If the system has no memory for
// them, the USM is never freed, and a message goes to the logger of [memmgr.SetLogger], or to
// standard error if there is none.
//
// Device memory of other devices belongs to the driver. If the SYCL library and the device support
// handles for it, [Segment.Handle] replaces File, and Attachment.Handle opens it. There are no
// seals: peers can always write, and the driver decides what happens to the memory when the process
// that made it ends. At both ends of the opened memory, and every 2 MiB between them, the runtime
// is asked whether it is device memory of the context and of that device. It cannot be checked
// that the memory is one allocation, or the intended one. Handles have been tested only on a
// simulated device.
//
// Device work is not ordered between processes: wait for it before you notify a peer.
//
// # Memory of other programs
//
// [MapForeign] maps memory that is not a segment: POSIX shared memory (shm_open) by its name,
// including blocks of Python's multiprocessing.shared_memory, and descriptors from other programs.
// It maps the memory as host memory, or over USM as above. Such memory is not sealed, so it is
// mapped under a guard: access to a truncated page reads zeros instead of ending the process with
// a signal, and [Mapping.Err] reports the truncation. The other program can change the bytes at any
// time: copy bytes that must be validated ([Mapping.ReadAt]). A name must be a single file name,
// links are not followed, and files that are not memory, or that belong to another user, are
// refused. A peer that chooses the name can still reach any named shared memory of this user.
// Segments have no name.
//
// # Fork
//
// A segment is shared memory (MAP_SHARED): a forked child writes to the same pages instead of a
// copy. A Mapping does not exist in forked children (MADV_DONTFORK): access to its addresses there
// is a fault. Descriptors are closed on exec.
//
// # Costs and limits
//
// A segment uses a descriptor, a mapping (two in USM) and whole pages, and needs several system calls:
// put a pool above the resource. The package counts its mappings and descriptors
// in the whole process ([InUse]). It uses at most half of those that the system allows
// (vm.max_map_count, RLIMIT_NOFILE).
//
// The system provides pages at their first access. If it overcommitted memory and has no page left,
// it ends a process. Where the system does not overcommit (vm.overcommit_memory is 2), Allocate
// reserves all pages of a segment and returns an error if there are too few.
package segment
