// Package region is the registry of clients' system shared memory: memory that a client created
// (shm_open, Python's multiprocessing.shared_memory), registers with the server by name, and then uses
// for inputs and outputs of requests, without a copy.
//
// # Access
//
// The server opens memory for its clients with its own rights, which may be those of root. The kind of
// client decides which memory it may register:
//
//   - A client of a Unix socket: memory of its own user, by the credentials that the kernel recorded
//     when it connected. The permissions of the group and of other users give no right, because
//     supplementary groups and access lists would have to be evaluated too.
//   - A client of a network, loopback included: memory of the user of this process, if Options.Prefix
//     is set. Its user is unknown, so without a prefix it registers nothing.
//
// The same rule decides which regions a client can use, list and unregister. Other regions do not exist
// for it. The clients of one user share names, and so do the clients of the network, as in other servers
// of the protocol.
//
// A key is one plain name that begins with Options.Prefix and is longer. No link is followed, only
// memory is opened, names of semaphores (sem.) are refused, and memory of this server has no name. The
// refusal of a key does not show whether the object exists.
//
// # Lifetime
//
// Acquire returns a range of a region as a buffer, which holds a reference to the mapping. So the memory
// stays mapped as long as the buffer, which may be held by an array that a model keeps. Until then the
// region is in use and cannot be unregistered. After Close nothing can be acquired, and the release of
// the last buffer unmaps the memory.
//
// # Changes by clients
//
// A client may change the bytes at any time, and also the pages: pages that it has not allocated, or has
// removed, are allocated by the process that touches them next and charged to it. Options.MaxBytes
// bounds them, since all pages of a region count from Register to Unregister. If the client truncates
// the memory, readers see zeros, and the check function of Acquire returns an error: call it after
// the work, before the results are used. System calls must not get the memory itself.
package region
