// Package ownertest drives owner cells from C threads, for the tests of this
// module: test files cannot use cgo themselves. Without cgo it is empty and
// [Supported] is false.
package ownertest
