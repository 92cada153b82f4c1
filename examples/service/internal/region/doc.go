// Package region is the registry of clients' system shared memory: memory that a client made
// (shm_open, Python's multiprocessing.shared_memory), which it names to the server by a
// request and then uses as the input or output of others, without a copy.
//
// # Who may use what
//
// A region is registered under a name by anybody who may send requests, and used, looked up
// and unregistered by anybody who knows its name or asks for the list, as in other servers of
// the protocol: names keep clients apart by agreement and not by force. What may be registered
// is shared memory that belongs to this process's own user (Options.Owner changes that) under
// one plain name that begins with Options.Prefix. No link is followed, nothing but memory is
// opened, names of semaphores (sem.) are refused, and memory of this server has no name. A
// client is not told whether something else lies under a key that is refused.
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
// The bytes stay the client's own to change. When it cuts the memory off, those who touch it
// see zeros, and Lease.Err says so: ask it after the work, before results are trusted. System
// calls must not be given the memory itself.
package region
