// Package flight serves tensors to other processes and machines by Arrow Flight, and receives them. It
// copies once on each side, between the network and memory of package memmgr.
//
//	s, err := flight.NewServer(flight.ServerOptions{Memory: pool})
//	l, at, err := s.Listen(location)
//	go s.Serve(l)
//
//	c, err := flight.Dial("grpc+tcp://127.0.0.1:8815", flight.ClientOptions{})
//	err = c.Put(ctx, "picture", a)
//	b, err := c.Get(ctx, "picture", pool)
//
// # Protocol
//
// A tensor has a name. In Flight it is a path of this one name, and its ticket is the name too. Its
// schema is one column, "tensor", of arrow.fixed_shape_tensor (package usmarrow): an array of shape
// [n, a, b] is n rows of shape [a, b]. DoPut takes any number of batches and stores the tensor when the
// client has sent all of them. If the schema's metadata has the number of rows ([RowsKey]), memory is
// allocated once, otherwise for each batch, and a stream with another number of rows is refused. Without
// it, a stream that a failed producer ended too early is stored as a complete tensor. DoGet sends the
// tensor as it was when the call began, in batches of 1 MiB or of the size that the call requests
// ([BatchHeader]). GetFlightInfo, GetSchema, ListFlights (the criteria are a prefix) and DoAction with
// "free" and "stats" are supported. A service adds its own actions with [ServerOptions].Actions. Any
// Flight client can be used; pyarrow's and arrow-go's are tested. Compressed batches and nulls are refused.
//
// # Memory
//
// The server allocates memory for a received batch from [ServerOptions].Memory before it reads the batch.
// If the allocation fails, the bytes stay with the client (package codec). A call owns the memory of the
// tensor that it receives, and releases it if the call fails. The store holds one reference of a complete
// tensor, and each DoGet holds one until gRPC has sent the tensor. A put that is refused, cancelled or
// interrupted leaves the former tensor unchanged and stores no part of the new one.
//
// If a client is killed, the memory that its call holds is freed immediately. Buffers that gRPC had queued
// are freed by a garbage collection, which the package starts within a few seconds.
//
// Tensors are in memory only and are lost when the server ends. A put under an existing name needs memory
// for both versions, because the former one stays until the new one is complete.
//
// Arrays in host-readable memory are sent from and received into their own memory. Device memory is copied
// through a few pooled buffers of host USM.
//
// # Limits
//
// Every resource that a peer can use has a limit ([ServerOptions], codec.Limits): connections, streams,
// messages, tensors, memory, and the time without progress.
//
// If the server has tokens, each call must carry one as "authorization: Bearer TOKEN". Without TLS, a
// server with tokens listens only on local addresses, and a client sends its token only to local
// addresses. The service grpc.health.v1 (Check) needs no token.
//
// The server probes a silent peer, such as a stopped process, after [ServerOptions].Keepalive (20 s). It
// disconnects the peer if there is no answer within half that time. A call whose peer answers probes but
// neither reads nor sends ends after [ServerOptions].Stall (60 s). A client detects the loss of its server
// within 30 s; its call ends earlier if its context does.
//
// Errors are gRPC statuses: InvalidArgument for an invalid tensor or name, NotFound, ResourceExhausted for
// limits and memory, Unauthenticated, DeadlineExceeded.
//
// # Alignment
//
// Arrow recommends that values are aligned to 64 bytes and requires 8. Arrays that this package allocates are
// aligned to 256. pyarrow uses a message in the buffer in which gRPC received it. This server pads large
// messages so that their values are aligned to 64 in that buffer; the values of arrow-go's server are at 17
// modulo 64. The alignment depends on internals of pyarrow, gRPC and malloc and is not guaranteed: a reader
// that needs it sets pyarrow.ipc.IpcReadOptions(ensure_alignment=...).
//
// # Several servers
//
// Servers do not communicate with each other: they neither replicate nor distribute tensors. For that, use
// an engine such as Dask, with package usmbridge.dask on its workers. [Client.Get] reads from its own server
// only, and refuses a tensor with several endpoints.
//
// # Thread safety
//
// Server, Store and Client are safe for concurrent use. Each call ends with its context.
package flight
