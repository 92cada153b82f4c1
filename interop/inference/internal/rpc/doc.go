// Package rpc serves an engine over gRPC: GRPCInferenceService of the Open Inference Protocol (package
// pb) with Triton's extensions for streams, statistics, the model repository and system
// shared memory, and grpc.health.v1 and reflection.
//
// # Tensors
//
// ModelInfer and ModelStreamInfer decode their messages while they arrive (package codec). A tensor gets
// memory of the pool, after a wait if necessary, before a byte of its raw contents is read. gRPC sends outputs
// from the memory in which the model left them. So raw contents must be after the other fields of a message.
// Every Protocol Buffers library writes fields in the order of their numbers, which works; a field after the
// raw contents is refused. Typed contents are for small tensors: they are on Go's heap until their tensor has
// memory.
//
// # Bounds
//
// Calls, with those of REST (engine.Engine.Enter), and per connection; the bytes of a message; 64 KiB for all its
// fields except raw contents; the time until a message begins to arrive, the timeout of the engine for all of
// it, and the time for a response to be read, which grows with its size. Before a tensor has memory, at most one
// HTTP/2 window (512 KiB) of its raw contents is read. A call whose peer is too slow ends with
// DEADLINE_EXCEEDED. A peer that does not read its response loses the connection, because gRPC cannot take
// the response back. A peer that does not answer pings, or makes no call for five minutes, loses it as well.
//
// # Errors
//
// An error has the status of its oip.Kind, and a message without details of the server.
// RESOURCE_EXHAUSTED and UNAVAILABLE have the trailer grpc-retry-pushback-ms if it is known when to try
// again. On a stream, an error of a request is an error_message, and the stream continues. Bytes that are
// not a message end it.
//
// # Dependencies on internals of gRPC
//
// The package uses gRPC's transport like package codec, and the experimental tap handle, which gives a call a
// context that can end before the handler returns.
package rpc
