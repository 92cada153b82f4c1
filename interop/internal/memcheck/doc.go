// Package memcheck tests the C parts without Go and without Python: a C program uses owner
// cells, the builder and the checker of DLPack tensors, and places and spans of SYCL memory
// on the fake library, and runs plain, under valgrind's memcheck, and under the sanitizers
// of addresses, leaks and undefined behaviour. There is nothing in it but tests.
package memcheck
