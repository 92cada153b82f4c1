// Package transfer reads the elements of arrays from files and writes them to files. It accesses
// files by position, in pieces of at most [PieceBytes] bytes, from a bounded number of goroutines
// that end before the call returns.
//
// Host-readable memory is read into and written from directly. Device memory is copied through a
// ring of host memory (ring.go); the copies overlap with the file access. A transfer needs at most
// 16 MiB of memory in addition to the array.
//
// The packages of the file formats use it. They parse the headers, describe the position of the
// elements ([Elements]), and wrap errors.
package transfer
