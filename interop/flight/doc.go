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
// allocated once, otherwise for each batch. DoGet sends the tensor as it was when the call began, in
// batches of 1 MiB or of the size that the call requests ([BatchHeader]). GetFlightInfo, GetSchema,
// ListFlights (the criteria are a prefix) and DoAction with "free" and "stats" are supported. A service
// adds its own actions with [ServerOptions].Actions. Any Flight client can be used; pyarrow's and
// arrow-go's are tested. Compressed batches and nulls are refused.
//
// # Memory
//
// What a client sends is charged to [ServerOptions].Memory before it is read: the bytes of a refused batch
// stay with the client (package codec). A call owns what it receives and releases it when it fails. The
// store holds one reference of a complete tensor, and each DoGet holds one until gRPC has sent it. A put
// that is refused, cancelled or killed leaves the former tensor unchanged and stores no part of the new
// one. The memory of a killed client is free again within a few seconds: immediately what the call holds,
// and after a garbage collection, which the package starts, what gRPC had queued and never frees.
//
// Nothing is durable: tensors are in memory only, and the end of the server loses them. A put under an
// existing name needs memory for both versions, because the former one stays until the new one is
// complete.
//
// Arrays in host-readable memory are sent from and received into their own memory. Device memory is copied
// through a few pooled buffers of host USM.
//
// # Limits
//
// Everything that a peer can increase has a bound ([ServerOptions], codec.Limits): connections,
// streams, messages, tensors, memory, the time without a byte. If the server has tokens, each call must
// carry one as "authorization: Bearer TOKEN". Without TLS a server with tokens listens only on this
// machine, and a client sends none to other machines. If there is no place for a new connection, a server
// with tokens closes the oldest connection on which no call has carried one ([ServerOptions].Tokens). A
// silent peer, such as a stopped process, is probed after [ServerOptions].Keepalive and disconnected after
// half that time again; by default its memory is free within 30 s and a garbage collection. A peer that
// answers probes, but reads or sends nothing, has [ServerOptions].Stall, a minute. A client notices the
// loss of its server within 30 s, or when its context ends. Errors are gRPC statuses: InvalidArgument
// for an invalid tensor or name, NotFound, ResourceExhausted for limits and memory, Unauthenticated,
// DeadlineExceeded.
//
// # Alignment
//
// Arrow recommends values at multiples of 64 bytes, at least 8. Arrays here are aligned to 256. pyarrow
// uses a message where gRPC stored it. This server pads large messages so that their values are aligned
// to 64 there; stock servers do not (17 modulo 64). This depends on how pyarrow, gRPC and malloc work, and
// is not guaranteed: a reader that needs alignment uses
// pyarrow.ipc.IpcReadOptions(ensure_alignment=...).
//
// # Several servers
//
// A server does not know other servers: it neither replicates nor distributes tensors. For that,
// use an engine such as Dask, with package usmbridge.dask on its workers. [Client.Get] reads the
// endpoints that GetFlightInfo describes, one after the other, from the first of their locations that serves them.
//
// # Threads
//
// Server, Store and Client may be used from any goroutine. Each call ends with its context.
package flight
