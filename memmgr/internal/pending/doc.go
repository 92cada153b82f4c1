// Package pending has freed memory whose device work has not finished.
//
// A [Set] has the dead cells of the memory of one owner, whose lock it uses. A pool has one, and [Frees] has one
// for each Synchronizer, for memory in no pool. A cell is in one of these:
//
//   - returned, if other libraries were shown the memory: it waits for a barrier on each queue that they may
//     have used ([Set.AddReturned]). One barrier per queue is for many cells. It is in refused if a queue
//     did not take its barrier, until the next tick.
//   - onCUDA, if libraries of CUDA were shown the place: only [Set.Settle] waits for their work.
//   - the list of its queue of last use ([Set.Add]), until its event is done. A request for an in-order queue may
//     take it before ([Set.TakeFor]).
//   - the list of stalled cells, if its work did not end within ten seconds: the runtime may have lost the event.
//
// A cell leaves the Set when its work has ended; then Owner.Complete is called. [Set.Collect] asks for some of
// the events, oldest first in each queue, and continues behind events that are not done, so that no work hides
// other work. [Set.Tick] and [Set.CompleteSome] do this in portions, [Set.CompleteAll] asks for each event once, and
// [Set.AwaitAll] waits.
//
// A Set knows no pool. The links between cells, the size class and the stamp of a pending cell are in the cell:
// docs/internals.md has a table of the fields, the words, the states and the lock order.
package pending
