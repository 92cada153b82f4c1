// Package admission bounds what clients of a gRPC server can occupy before the server has accepted a
// call: [Listen] bounds connections, in total and per client, and [Registrar] authenticates calls before
// their requests are read, and ends calls whose request does not arrive.
//
// Package flight uses it for its server. Other gRPC servers can use it likewise:
//
//	s := grpc.NewServer()
//	pb.RegisterServiceServer(admission.Registrar(s, time.Minute, enter), implementation)
//	err := s.Serve(admission.Listen(l, admission.Limits{Connections: 1024, PerClient: 256}))
package admission
