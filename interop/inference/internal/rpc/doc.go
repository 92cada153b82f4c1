// Package rpc serves an engine by gRPC: the Open Inference Protocol's GRPCInferenceService
// (package pb describes it) with Triton's extensions for streams, statistics, configuration,
// the repository's index and system shared memory, and grpc.health.v1 and reflection beside it.
//
// # Tensors
//
// ModelInfer and ModelStreamInfer read their messages as they come (package codec): a
// tensor's place in the pool is charged to the tenant, waiting if need be, before a byte of
// it is read, and gRPC sends outputs from the memory in which the model left them. The
// order of fields in a message is then the order of events. It is the one in which every
// Protocol Buffers library writes them, by number; where one comes too late to be of use
// (a shape behind its contents, raw contents before their input) the request is refused
// with words that say so.
//
// # What a peer can hold
//
// Connections, in total and per client (an IPv4 address, an IPv6 /64, or all loopback
// addresses); calls, in total and per tenant; the bytes of a message and of its small fields; the time in which a message must have come, and an answer
// must have been taken, which grows with its size. What is read of a message before its
// tensor has a place is one HTTP/2 window (512 KiB) of each call. A call whose peer is too
// slow ends with DEADLINE_EXCEEDED; a peer that does not read its answer loses the
// connection, because gRPC has no other way to take the answer back. A peer that does not
// answer pings (stopped, or gone) loses it as well.
//
// # Errors
//
// Each is the status of its oip.Kind, with a message that names nothing of the server's
// inside; RESOURCE_EXHAUSTED and UNAVAILABLE carry the trailer grpc-retry-pushback-ms where
// it is known when to come again. An answer of a stream carries an error as the protocol has it,
// in error_message, and the stream goes on; bytes that are no message end it.
//
// # What it rests on
//
// As package codec on gRPC's transport, and on the experimental tap handle, by which a call
// gets a context that can end before the handler returns.
package rpc
