// Package region is the registry of clients' system shared memory: memory that a client made
// (shm_open, Python's multiprocessing.shared_memory), which it names to the server by a
// request and then uses as the input or output of others, without a copy.
//
// # Who may use what
//
// The server opens memory for its clients with its own rights, which may be those of root. Who
// the client is decides what it may register:
//
//   - A client of a Unix socket: memory of its own user, by the credentials that the kernel
//     recorded when it connected. The group and the other users of the memory's mode give no
//     right, because supplementary groups and access lists would have to be evaluated too.
//   - A client of a network, loopback included: memory of the user of this process, if
//     Options.Prefix is set. Its user is unknown, so that without a prefix it registers nothing.
//
// The same rule decides which regions a client uses, lists and unregisters: others do not exist
// for it. Among the clients of one user, and among those of the network, names are shared, as
// in other servers of the protocol.
//
// A key is one plain name that begins with Options.Prefix and is longer. No link is followed,
// nothing but memory is opened, names of semaphores (sem.) are refused, and memory of this
// server has no name. The refusal of a key does not say whether something lies under it.
//
// # How long
//
// A Lease is a range of a region in use; its Buffer owns a reference of the mapping, so that
// the memory is there as long as anybody holds the buffer, be it an array that a model kept.
// Until then the region is in use and cannot be unregistered. After Close nothing new is
// lent, and the last mapping goes with its last holder.
//
// # What clients do to it meanwhile
//
// The bytes stay the client's own to change, and so are the pages below them: those that the client
// has not allocated, or has removed again, are allocated by the process that touches them next and
// charged to it. Options.MaxBytes bounds them, since all pages of a region count from Register to
// Unregister. When it cuts the memory off, those who touch it
// see zeros, and Lease.Err says so: ask it after the work, before results are trusted. System
// calls must not be given the memory itself.
package region
