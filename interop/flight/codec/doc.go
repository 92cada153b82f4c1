// Package codec moves large fields of gRPC messages between the network and memory of
// package memmgr, with one copy on each side, and bounds what a peer can make the
// process hold meanwhile. The Flight server and client are made of it; any gRPC
// service with tensors in its messages can be.
//
// # Sending
//
// A value that implements [Outgoing] goes out as the pieces that it names: its small
// fields as bytes, its large ones as the memory itself ([Leases.Memory]). [New] is the
// codec that knows such values, for grpc.ForceServerCodecV2 and grpc.ForceCodecV2; all
// other messages go through Protocol Buffers as ever.
//
// grpc reads that memory until the bytes are with the kernel, which is after SendMsg
// has returned. So each piece holds a reference of its memory, which ends in one of two
// ways: when grpc frees the piece, or, because grpc never frees what was queued on a
// connection that broke, when the collector finds it gone. [Leases] are the pieces of
// one call: [Leases.Wait] returns when grpc is done with them, and for those that a
// broken connection left it has the collector run, soon and then each second at most,
// until they are back. That is the only time at which this package starts a goroutine or the
// collector; the goroutine ends with the last of them, or after a minute.
//
// # Receiving
//
// A message is not handed over whole. [Incoming] is one on its way in: its length is
// known, its bytes come as they are asked for, the caller reads the small fields,
// asks a resource for memory for the large one (so that a limit, a tenant or a pool
// refuses it, or makes it wait, before a byte of it is read) and reads it to its final
// place. On a server [Receiver] reads a stream in that way: what has not been asked
// for stays with the sender, behind HTTP/2's flow control, but for one window. A
// client, whose transport grpc does not show, receives by the codec into a value with
// a Receive method ([Receivable]): there grpc has read the whole message by then, so
// the bounds are that of grpc.MaxCallRecvMsgSize and small messages.
//
// [Gate] bounds what all streams of a server do at a time: their number, the bytes of
// the messages that are being read, the size of one message and of its small fields.
//
// # Errors
//
// [*LimitError] is a bound that was reached (ResourceExhausted to gRPC), [*WireError] a
// message that cannot be (InvalidArgument). Both have the method GRPCStatus, so that a
// handler may return them as they are. Errors of the transport are gRPC's own.
//
// # What it rests on
//
// grpc marks its package mem as experimental, and [Receiver] uses three methods of the
// stream that grpc.ServerTransportStreamFromContext gives which its interface does not
// list; where they are missing it receives by the codec instead. The module therefore
// pins grpc to one release, and a test says when either changes.
//
// # Threads
//
// A Gate, a codec and Leases may be used from any goroutine; a Receiver and an
// Incoming by one at a time.
package codec
