// Package goexit ends the program if Go code that C called ends its goroutine (runtime.Goexit). The C frames below
// that code cannot be unwound, and the thread's state in C code, such as Python's lock, would be lost with the goroutine.
package goexit

import (
	"fmt"
	"runtime/debug"
)

// End ends the program with a panic that names the function that called runtime.Goexit. The stack in its text shows the
// call. End must be called by a deferred function while the goroutine ends. It does not return.
//
// The panic is that of a new goroutine, because deferred functions of this one, such as those of net/http, could
// recover it.
func End(function string) {
	text := fmt.Sprintf("%s called runtime.Goexit (FailNow or Fatal of a test, a function of testify's require), which must not "+
		"pass through C: return an error instead\n\n%s", function, debug.Stack())
	go panic(text)
	select {}
}
