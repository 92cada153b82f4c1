// Package segment offers memory that other processes of the machine can map: one
// buffer in several processes, without a copy.
//
// A [Resource] gives segments. [NewHost] makes them in memory of the host, on memory
// files (memfd_create), which have a descriptor and no name: nothing stays behind after
// any end of the process; [NewUSM] makes them USM of an OpenCL CPU device as well. A
// [memmgr.Pool] above it serves small requests as ever.
// [Find] tells which segment a buffer lies in, [Segment.File] gives a descriptor for
// another process, which comes there by a Unix socket or by inheritance, and [Map] maps
// it there.
//
//	one process                               another
//	r, err := segment.NewHost(segment.PeersWrite)
//	pool := memmgr.NewPool(r)
//	b, err := memmgr.New(pool, …)
//	s, offset, _ := segment.Find(b.Address(), b.Size())
//	f, err := s.File()          --- f, s.Size(), s.Audience(), offset --->
//	                                          m, err := segment.Map(segment.Attachment{File: f, …})
//
// Who may use which part of a segment, and for how long, is not settled here: a peer
// sees all of it, and this package does not know which peers there are. Give memory
// back (Release) when no peer needs it.
//
// # Ownership
//
// Memory of a Resource is owned as that of any other. A peer's mapping keeps the pages
// of the segment, whether the process that made it frees it or ends; the system takes
// them back with the last mapping and descriptor. A [Mapping] belongs to whoever called
// Map.
//
// # What peers can do
//
// All memory of a Resource is for one [Audience], kept by the kernel: nobody can cut a
// segment off or make it longer, and one for [PeersRead] is written by its maker alone.
// Peers who may write can do so at any time, and may give the pages of a segment back
// (which makes them zero); a reader who has to trust what it read copies it first. Map
// refuses a descriptor that does not have the seals of its audience.
//
// # Unified shared memory
//
// USM of an OpenCL CPU device lies in private pages of the process. A memory file that
// is mapped over an allocation of whole pages takes their place: the runtime still
// knows the memory as USM of its kind, and kernels and copies work in it, while other
// processes map the file, as plain memory or over USM of their own (Attachment.Queue;
// contexts and kinds need not be the same). Nothing promises this, so it is tried for
// each device and kind before it is used, and [NewUSM] says why where it does not work.
//
// Before such USM is freed, private pages are put back under it. If the system has none
// to give, the USM is never freed; that is told to the logger of [memmgr.SetLogger],
// or to the standard error where there is none.
//
// Device memory of other devices belongs to the driver. Where the SYCL library and the
// device have handles for it, [Segment.Handle] takes the place of File and
// Attachment.Handle opens it; the driver then does what seals and descriptors do
// elsewhere: others can always write, and what becomes of the memory when its maker ends
// is the driver's affair. What a handle gives is asked of the runtime at both ends and each
// 2 MiB between: that it is device memory of the context, and of that device. That it is one
// allocation, and the one that was meant, nobody can ask. This part has been tried on a
// simulated machine only.
//
// Work on a device is ordered with other processes by nobody: wait for it before a peer
// is told to look.
//
// # Memory of others
//
// [MapForeign] maps what is no segment: POSIX shared memory (shm_open) by its name, blocks of
// Python's multiprocessing.shared_memory among it, and descriptors of memory that another
// program gives; as memory of the host, or laid over USM as above. Nothing seals it, so it is
// mapped under a guard: where another process cut it off, touching it gives zeros and
// [Mapping.Err] the reason, in place of a signal that ends the process. The bytes are the
// other program's to change at any time: copy what must be checked ([Mapping.ReadAt]). One name
// is taken and no path, no link is followed, and what is no memory, or of another user, is
// refused; who takes names from strangers gives them no more than that: any shared memory of
// this user that they can name. Segments have no name.
//
// # Fork
//
// A segment is shared memory (MAP_SHARED): a child that the process forks writes to the
// same pages, where it would have a copy of other memory. Received mappings do not exist
// in forked children (MADV_DONTFORK), and touching their addresses there is a fault.
// Descriptors are closed on exec.
//
// # Costs and bounds
//
// A segment takes a descriptor, a mapping (two where it lies in USM), whole pages, and
// some twenty-five microseconds of processor time to be made and freed. The package counts mappings and descriptors over the whole
// process ([InUse]) and refuses more than half of what the system allows
// ([WithMaxMappings], [WithMaxDescriptors]). The pages themselves are the system's to
// give at the first touch, and one that it cannot give then ends the process that touched
// it, as with all memory that the system promised too much of. Where it promises no
// more than it has (vm.overcommit_memory is 2), a segment's pages are taken when it is
// allocated, and running out of them is an error of Allocate.
package segment
