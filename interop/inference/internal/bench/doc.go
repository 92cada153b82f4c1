// Command bench compares the inference server with other servers of the same function, in one run, in
// alternation.
//
//	bench -service bin/usmserve [-aiohttp DIR] [-mlserver DIR] [-only REGEXP] [-rounds 3] [-time 2s] [-json FILE]
//
// A separate process, which is this program too, generates the load. It uses a minimal HTTP client over a
// connection, so that it takes little processor time, and grpc-go with messages that are encoded once.
// Processor time is that of the whole process tree of the server during the load, from /proc. The length
// of each response is checked, and each byte of one response in 64.
//
// The peers are in peers/: aiohttp with the same Numba function, which gets the bare array and responds
// with it, without a protocol; MLServer with the function as a runtime; and plain processes. Rows of
// peers that are not installed are left out, and the reason is printed.
package main
