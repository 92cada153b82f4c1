// Package engine serves the requests of clients, from their admission to the end of their memory, and
// holds the models. Transports use it in the terms of package oip. It calls models through
// executor.Runner, so it depends on neither HTTP nor gRPC nor Python.
//
// # Requests
//
// Enter bounds the calls of all transports. Begin admits a request or refuses it immediately. Input and
// Output declare its tensors, Fill reads an input into memory of the pool, and Run calls the model and
// returns the outputs. Their bytes are valid until End, which releases everything and may be called at any
// point. All waiting, for memory and in the bounded queue of the runner, ends at the deadline of the request.
// There is no fairness between clients: one client can take all places.
//
// # Memory
//
// Models get inputs as read-only arrays, in memory of the pool or, in place, in a region of the client.
// A model with bound outputs writes them into the memory from which they are sent, or into a region;
// nothing is copied. That memory is cleared first, unless the model writes every element. Returned
// outputs are copied once: memory that a slow client has not fetched must count against the limit, and
// the model may write again to an array that it keeps.
//
// A request takes all memory for its known tensors at once, in its first Fill or in Run. No request
// waits for memory while it holds a part of it. Models in other processes get copies of regions, and
// their outputs are copied there.
//
// Allocations of running calls have a pool of their own, Options.Calls, and copies of returned outputs another one,
// Options.Results. Waiting requests can fill the first pool, but they cannot take the memory of calls, and ended calls
// cannot take that of results: so a request that holds memory of one pool waits only for later ones, and results
// wait for nothing but their clients.
//
// # Errors
//
// All errors are *oip.Error. A transport sends the error to its client and counts it with Refused, with
// the requests that the transport itself refuses. So Stats contains each error once, by kind.
package engine
