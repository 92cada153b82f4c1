// Package admin serves the operator of the inference server: metrics for Prometheus, profiles,
// health probes and a status page in plain text.
//
//	/                        the status: readiness, models, memory, worker processes
//	/metrics                 for Prometheus
//	/debug/pprof/            Go's profiles, and "memory": the referenced memory of package memmgr
//	                         by place of allocation and tag
//	/debug/memory.json       the segments and blocks of the pool, for PyTorch's memory viewer
//	/livez, /readyz          200, or 503 with the reason
//
// # Access
//
// There is no password: every client that can connect sees everything here. The address is a
// loopback address unless the operator configures another one. A web page can make the browser of
// a local user send requests, therefore the handler refuses a Host that is an unknown name (DNS
// rebinding), requests of pages of another origin, and all methods except GET and HEAD. No request
// changes anything.
//
// The pages contain no secrets of clients. A tenant that is not an address is shown as a hash of
// its name, because the name may be a token. Names of shared memory and values of tensors are
// never shown.
package admin
