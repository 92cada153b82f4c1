// Package admission limits the resources that clients of a gRPC server can occupy before the server has
// accepted a call. [Listen] limits connections, in total and per client. [Registrar] authenticates calls
// before their requests are read, and ends calls whose request does not arrive.
//
// Package flight uses it for its server. Any gRPC server can use it:
//
//	s := grpc.NewServer()
//	pb.RegisterServiceServer(admission.Registrar(s, time.Minute, enter), implementation)
//	err := s.Serve(admission.Listen(l, admission.Limits{Connections: 1024, PerClient: 256}))
//
// The listener owns the listener below it: its Close closes both. Listeners and registrars are safe for
// concurrent use. A refused call ends with the error of enter, or with the gRPC code DeadlineExceeded if
// its request does not arrive in time.
package admission
