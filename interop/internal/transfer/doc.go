// Package transfer moves the elements of arrays between files and the memory of arrays: by
// position, in pieces of [PieceBytes], by a bounded number of goroutines that end with the
// call.
//
// Memory that the host can read is the read's own destination and the write's own source.
// Device memory goes through a ring of host memory (ring.go), whose copies overlap with the
// reads; what an array needs beside itself, in either direction, is at most 16 MiB.
//
// The packages of the file formats stand on it: they parse headers, say where elements lie
// ([Elements]), and give errors their names.
package transfer
