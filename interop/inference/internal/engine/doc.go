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
// Requests take turns by tenant (package fair). A tenant that is alone has all of them; while others
// are about it has a few, and reads nothing without one: what a flood of one has the processors do
// is bounded before anything is read. Memory is shared out by tenant
// (memmgr.Tenant), and the tenants that are remembered are bounded in number.
//
// # Memory
//
// Inputs are given to models as read-only arrays, on memory of the pool or, in place, of a
// client's region. A model with bound outputs writes them where they are sent from, or in
// the client's region: no byte is copied. They are cleared before, unless the model says that
// it writes every element. What another model returns is copied once, because what a client is
// slow to fetch must count against the limit, and because a model may write again to what it
// keeps; unless it is an input in memory of the pool, whole, or an array that the model made in
// this call, dense, readable by the host, and that nobody else has: those are sent from where
// they lie.
//
// All memory of a request is taken at once, where its tensors are known by then: its first
// Fill, or Run, waits for it, and nobody waits with a part of it. Models that run apart, in
// other processes, see copies of regions, and outputs are copied there.
//
// Calls that run have a pool of their own, Options.Calls, for what they can ask for only while
// they run: what models allocate, and the copies of what they return. Requests that wait for
// their turn may fill the first pool with their tensors and cannot take that of calls, so that
// calls go on, end, and give back what the others wait for. A tenant has an account with each
// pool.
//
// # Errors
//
// All errors are *oip.Error. Transports tell them to clients, and count them there with Refused,
// beside those that they refuse themselves; so Stats has each once, by its kind.
//
// The log and all reports have tenants by oip.TenantLabel; only Stats has their names.
package engine
