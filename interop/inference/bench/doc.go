// Command bench compares the inference service with what else serves the same function, in one
// run, the ways in turn.
//
//	bench -service bin/usmserve [-python DIR] [-mlserver DIR] [-only REGEXP] [-rounds 3] [-seconds 2] [-json FILE]
//
// The load comes from a process of its own, which is this program again: it speaks HTTP by a
// few lines over a connection, so that it takes little of the processors, and gRPC by grpc-go
// with messages that are made once. Processor time is of the server's whole process tree, from
// /proc, while the load runs. Each answer is checked for its length, and one in 64 for each byte.
//
// The flood of one client is also sent to aiohttp and to a bare handler of net/http, to see what of
// its effect on another is the machine's.
//
// The peers lie in peers/: aiohttp with the same Numba function, which is sent the bare array
// and answers with the bare array, so that it has no protocol to speak; MLServer, with the
// function as a runtime of its own; and plain processes. Where a peer is not installed its rows
// are left out, and the reason is printed.
package main
