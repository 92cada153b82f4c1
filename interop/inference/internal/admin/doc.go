// Package admin serves the operator of the inference server:
//
//	/metrics         for Prometheus
//	/debug/pprof/    Go's profiles (net/http/pprof), and "memory": the referenced memory of package memmgr
//	                 by place of allocation and tag
//	/livez, /readyz  200, or 503 with the reason
//
// There is no password: every client that can connect sees everything here. The address is a loopback
// address unless the operator configures another one. A web page can make the browser of a local user
// send requests, so the handler refuses a Host that is an unknown name (DNS rebinding), requests of pages
// of another origin, and all methods except GET and HEAD. The pages contain no values of tensors and no
// names of shared memory.
package admin
