// Package calling tells what Python calls, in Go or in C that enters Go, of which call from Go
// the code that calls it is part.
package calling

import "context"

// Context is package python's: the context of the innermost CallContext that runs on the
// calling thread, context.Background in none. Threads that the code of a call starts are in
// none.
var Context func() context.Context
