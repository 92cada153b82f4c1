// Package engine takes one request of a client from its admission to the end of its memory,
// and knows the models. Transports speak to it, in the words of package oip; what runs the
// models is behind executor.Runner, so that it knows neither HTTP nor gRPC nor Python.
//
// # A request
//
// Begin admits it, or refuses it at once; Input and Output say what it has and wants, Fill
// reads an input into memory of the pool, charged to its tenant, and Run has it wait for its
// turn, calls the model and puts the outputs in place. Their bytes are valid until End, which
// gives everything back and may be called at any point. All waiting ends at the request's
// deadline.
//
// Requests take turns by tenant (package fair), memory is shared out by tenant
// (memmgr.Tenant), and the tenants that are remembered are bounded in number.
//
// # Memory
//
// Inputs are given to models as read-only arrays, on memory of the pool or, in place, of a
// client's region. A model with bound outputs writes them where they are sent from, or in
// the client's region: no byte is copied. What another model returns is copied once, unless
// it lies densely in memory of the pool, because what a client is slow to fetch must count
// against the limit.
//
// All memory of a request is taken at once, where its tensors are known by then: its first
// Fill, or Run, waits for it, and nobody waits with a part of it. Models that run apart, in
// other processes, see copies of regions, and outputs are copied there.
//
// # Errors
//
// All errors are *oip.Error.
package engine
