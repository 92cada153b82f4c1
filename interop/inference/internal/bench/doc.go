// Command bench compares the inference server with aiohttp and with plain processes, in one run, in
// alternation.
//
//	bench -service bin/usmserve [-only REGEXP] [-rounds 3] [-time 2s]
//
// The load comes from this process, which uses a minimal HTTP client, and grpc-go with messages that are
// encoded once, so that it takes little processor time. Processor time is that of the whole process tree
// of the server during the load, from /proc. The length of each response is checked, and each byte of one
// response in 64.
//
// The peers are in peers/: aiohttp with the same Numba function, which gets the bare array and responds
// with it, without a protocol; and plain processes. Rows of aiohttp are left out if it is not installed.
package main
