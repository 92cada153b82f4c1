// Package codec moves large fields of gRPC messages between the network and memory of
// package memmgr with one copy on each side. It also limits how much memory a peer can
// make the process hold during a transfer. The Flight server and client are built on it;
// any gRPC service with tensors in its messages can use it.
//
//	server := grpc.NewServer(grpc.ForceServerCodecV2(codec.New(0)))
//	err := codec.NewReceiver(gate, stream).Next(func(in *codec.Incoming) error {
//		… in.Field, in.Length, memmgr.New(pool, …), in.ReadFull
//	err = stream.SendMsg(message) // an Outgoing, with leases.Memory(buffer, data) for its large field
//	err = leases.Wait(ctx)        // until gRPC has released the memory
//
// # Sending
//
// A value that implements [Outgoing] returns its encoded message as a list of buffers:
// small fields as byte slices, large fields as references to existing memory
// ([Leases.Memory]). [New] returns the codec for such values; pass it to
// grpc.ForceServerCodecV2 and grpc.ForceCodecV2. The codec encodes all other messages
// with Protocol Buffers.
//
// gRPC reads the memory until the kernel has accepted the bytes, which is after SendMsg
// returns. Each buffer therefore holds a reference of its memory. The reference is
// released when gRPC frees the buffer. gRPC never frees buffers that were queued on a
// connection that broke; their references are released when the garbage collector finds
// the buffers unreachable.
//
// [Leases] tracks the buffers of one call. [Leases.Wait] returns when gRPC has released
// all of them. If the call ended with buffers outstanding, a background goroutine runs the
// garbage collector, at most once a second, until they are released or two minutes have
// passed. This package starts goroutines and collections for no other reason.
//
// # Receiving
//
// [Incoming] is a message that is being received. Its length is known, and its bytes are
// read on demand. The caller reads the small fields, allocates memory for the large field
// from a memmgr.Resource and reads the field into that memory. A limit, a tenant or a pool
// can therefore refuse or delay the allocation before any byte of the field is read.
//
// On a server, [Receiver] reads a stream this way: except for one HTTP/2 flow-control
// window, unread bytes stay with the sender. On a client, gRPC does not expose the
// transport. The codec passes the received message to a value with a Receive method
// ([Receivable]). By then gRPC has read the whole message, so this suits small messages
// and calls with grpc.MaxCallRecvMsgSize.
//
// [Gate] limits all streams of a server together: their number, the bytes of the messages
// that are being read, the size of one message and of its small fields.
//
// # Errors
//
// [*LimitError] reports an exceeded limit (gRPC code ResourceExhausted), [*WireError] an
// invalid encoding (InvalidArgument). Both have the method GRPCStatus, so handlers may
// return them unchanged. Transport errors are gRPC's own.
//
// # Dependency on gRPC internals
//
// gRPC marks its package mem as experimental. [Receiver] also calls three methods of the
// stream returned by grpc.ServerTransportStreamFromContext that its interface does not
// declare; if they are missing, it receives through the codec instead. The module
// therefore pins gRPC to one release, and a test fails if these methods disappear.
//
// # Thread safety
//
// A Gate, a codec and Leases are safe for concurrent use. A Receiver and an Incoming must
// be used by one goroutine at a time.
package codec
