// Package memcheck tests the C parts without Go and without Python. A C program uses owner cells, the
// builder and the checker of DLPack tensors, and places and spans of SYCL memory on the fake library.
// It runs alone, under valgrind's memcheck, and with the sanitizers for addresses, leaks and undefined
// behaviour. The package contains only tests.
package memcheck
