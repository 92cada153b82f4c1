// Package order orders device work on memory. It has the record of pending work in the owner cell of the
// memory, and knows no pool and no buffer.
//
//   - [Synchronizer] is the interface to the runtime. [Events] implements it with SYCL; [System] is that
//     of memory without a resource.
//   - The record of a cell is its pending event, its queue of last use, and its other queues, on which other
//     libraries may have unreported work. A cell contains only the address of a queue. The table of
//     queues keeps each of them alive while cells name it.
//   - [SetPending] and [SharedOn] add work to a record. [Wait], [Behind] and a [Submission] order
//     the host, a queue, and new work behind all work of a record. If the runtime refuses a
//     barrier, they wait instead.
//   - [Barriers] and [Gather] are for dead cells: before the memory is reused or freed, each queue that other
//     libraries may have used takes a barrier, and the event of the cell completes with all of them.
//     Queues may refuse barriers; then the caller tries again later.
//   - Work of libraries of CUDA has no events of SYCL. Only waits of the host order it: [WaitForOthers], [Wait].
//
// An event is added to a cell while addingPending is held, so that a cell loses only events that are done, and
// it is exchanged under the spin bit of the cell (HoldPending). If the queue of last use is in-order, the
// pending event precedes later work of that queue. docs/internals.md has the words and the lock order.
package order
