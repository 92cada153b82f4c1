// Package calls makes several calls of Python functions in one entry into Python.
//
// The caller encodes the arguments of a call as words (package values) without the GIL. C creates the
// Python objects when it makes the call, and plain results return in the same way. So a short call
// needs no cgo call and no entry into Python for each argument, and its caller encodes while other
// calls run.
//
// An [Item] is one call, a [Batch] a row of calls. The [State] of an Item records which side owns it:
// an atomic word that the caller and the batch exchange. A caller that gives up before its call has
// begun removes it from the row. TakeBack removes calls from a row that is held up, so that another
// batch can run them.
//
// A call has the context of its caller, for Go functions that Python calls. This package does not wait
// for the context. To stop a call, use Interrupt.
package calls

// State records which side owns a call.
type State uint32

// States. The side that moves a call out of Waiting or Running, by [Item.Move], owns it.
const (
	Waiting State = iota // not begun
	Running              // begun, or its result is being read
	Left                 // abandoned by its caller: the result is dropped
	Done                 // the result is ready, or will be soon
)

// Size is the maximum number of calls of a batch.
const Size = 32
