// Package testmod is a built-in module and some C callers for the tests of package
// python: what they need of C and may not have in their own files. It owns nothing
// beyond the life of the process, and is empty without cgo.
package testmod
