// Package calls makes several calls of Python functions in one entry into Python.
//
// A call's arguments are written down as a row of words by whoever wants it, without Python's
// lock (the GIL), and made objects by C where the call is made, one after the other; plain
// results come back the same way. So a short call costs neither Go's entries into C, of which
// there would be several for each of its arguments, nor entries into Python, and its caller's
// part of the work is done beside the calls of others.
//
// An [Item] is one call, a [Batch] what is made in a row. Who has the say over a call is its
// [State], an atomic word that its caller and the batch exchange: a caller that gives up
// before its call has begun takes it out of the row, and rows that are held up are taken
// apart, by TakeBack, for others to go on with.
//
// A call has a context: the one of its caller, for functions of Go that Python calls. Nothing
// here waits for it. Who wants the call to stop calls Interrupt.
package calls

// State is who has the say over a call.
type State uint32

// States. Whoever moves a call out of Waiting or Running, by [Item.Move], has the say.
const (
	Waiting State = iota // not begun
	Running              // begun, or its result is being read
	Left                 // given up by its caller: nobody wants the result
	Done                 // its result is there, or soon
)

// Size is how many calls a batch can have.
const Size = 32
