// Package admin is what an operator sees of the service: metrics for Prometheus, profiles, the
// answers to probes, and a page that shows it live.
//
//	/            the page, and what it consists of
//	/events      what the page shows, once a second, as server-sent events
//	/metrics     for Prometheus
//	/debug/pprof/            Go's profiles, and "memory": what is referenced of the memory that
//	                         package memmgr gave out, by place of allocation and tag
//	/debug/memory.svg, .json the pool's segments and blocks, as a picture and for PyTorch's viewer
//	/livez, /readyz          200, or 503 with the reason
//
// # Who may see it
//
// There is no password: whoever reaches the address sees everything here, so that it listens
// on the loopback device unless the operator says otherwise. A browser on the same machine is
// a way in for every page that it shows; hence requests whose Host is a name that was not
// given (DNS rebinding), those that a page of another origin makes, and all methods but GET and
// HEAD are refused, nothing here may be framed, and the page loads nothing from elsewhere, which
// its Content-Security-Policy says as well. Nothing here changes anything.
//
// Clients' secrets are not told: a tenant that is not an address is shown by a hash of its name,
// because the name may come from a header with a token; names of shared memory, which give
// whoever knows them the memory, are not shown; and no value of a tensor is.
//
// # What is counted
//
// Requests that were refused or failed are counted by why, those included that came to no model
// (text that is no JSON, bodies that came too slowly, pages of other sites), but not what probes
// are told. Pools are shown both where calls have one of their own, whose picture is left out.
//
// # What it costs
//
// Counters are read once a second and at each scrape. The picture of the pool, for which the
// pool is locked, is made once for all who look, while somebody does, at most once a second and
// in at most a fiftieth of the time. The number of pages that are fed at a time is bounded, and
// one that does not read is let go.
//
// # Traces
//
// OpenTelemetry's are of package traces. What a span tells of a request's stages is in the
// metrics by model and stage too.
package admin
