// Package flight serves tensors to other processes and machines by Arrow Flight, and
// fetches them: between the network and memory of package memmgr, with one copy a side.
//
//	s, err := flight.NewServer(flight.ServerOptions{Memory: pool})
//	l, at, err := s.Listen(location)
//	go s.Serve(l)
//
//	c, err := flight.Dial("grpc+tcp://127.0.0.1:8815", flight.ClientOptions{})
//	err = c.Put(ctx, "picture", a)
//	b, err := c.Get(ctx, "picture", pool)
//
// # What travels
//
// A tensor has a name and is a Flight path of that one name; its ticket is the name as
// well. Its schema is one column, "tensor", of arrow.fixed_shape_tensor (package
// usmarrow): an array of shape [n, a, b] is n rows of shape [a, b]. DoPut takes any
// number of batches and keeps the tensor when the client has sent all; where the
// schema's metadata says how many rows there will be ([RowsKey]), memory is asked for
// once, else for each batch. DoGet sends what had the name when it was called, in batches
// of 1 MiB or of the size that the call asks for ([BatchHeader]).
// GetFlightInfo, ListFlights (the criteria are a prefix), GetSchema, and DoAction with
// "free" and "stats" do what they say; a service adds actions of its own
// ([ServerOptions].Actions), such as to compute where the rows are. Any Flight client will do, pyarrow's and
// arrow-go's are tested; batches that are compressed, or have nulls, are refused.
//
// # Memory
//
// What a client sends is charged to [ServerOptions].Memory before it is read: the bytes
// of a batch that is refused stay with the client (package codec). What is being
// received belongs to the call and is gone with it; the store holds one reference of a
// finished tensor, and each DoGet one for as long as gRPC has not sent it. A put that is
// refused, cancelled or killed leaves the former tensor as it was and no part of the
// new one. When a client is killed, its memory is back within a few seconds: at once
// for what the call holds, and after a collection, which is seen to, for what gRPC had
// queued and never frees.
//
// Arrays that the host can read are sent and received where they lie. Device memory
// passes through a few pieces of pooled host USM.
//
// # What a peer can do
//
// Everything that grows has a bound ([ServerOptions], codec.Limits): connections,
// streams, messages, tensors, memory, the time without a byte. A call carries a token,
// where tokens are asked for, as "authorization: Bearer TOKEN"; without TLS a server
// with tokens listens on this machine only and a client sends none elsewhere. A server with
// tokens closes the oldest connection on which no call has carried one when there is no
// place for a new connection ([ServerOptions].Tokens). A peer that
// is stopped, or whose machine is gone, is asked after [ServerOptions].Keepalive and cut
// off after half that time again: by default its memory is back within 30 s and a
// collection. One that answers, but reads or sends nothing, has [ServerOptions].Stall, a
// minute. A client finds out about its server within 30 s too, or with its context. Errors
// are gRPC's statuses: InvalidArgument for what is no tensor or no name, NotFound,
// ResourceExhausted for bounds and memory, Unauthenticated, DeadlineExceeded.
//
// # Alignment
//
// Arrow asks for values at multiples of 8 bytes, better 64. Arrays here are aligned to
// 256. pyarrow leaves a message where gRPC put it; this server pads messages so that the
// values of large ones are aligned to 64 there, which stock servers do not (17 modulo
// 64). That is how pyarrow and gRPC are built, and holds where malloc maps each message
// by itself; it is no promise: a reader that
// needs alignment says pyarrow.ipc.IpcReadOptions(ensure_alignment=...).
//
// # Several servers
//
// A server does not know other servers: it neither replicates nor distributes tensors. For that,
// use an engine such as Dask, with package usmbridge.dask on its workers. [Client.Get] reads the
// endpoints that GetFlightInfo describes, one after the other, from whichever server has them.
//
// # Threads
//
// Server, Store and Client may be used from any goroutine. Each call ends with
// its context.
package flight
