// Package testmod is a built-in module with C functions for the tests of package python,
// because test files cannot contain cgo code. It is never unloaded. Without cgo it is empty.
package testmod
