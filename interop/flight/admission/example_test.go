package admission_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/flight/admission"
)

// A gRPC server refuses calls without a token before it reads their requests. A connection stays
// provisional until a call on it has a token.
func Example() {
	enter := func(ctx context.Context) (func(), error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if token := md.Get("token"); len(token) != 1 || token[0] != "secret" {
			return nil, status.Error(codes.Unauthenticated, "the token is missing or wrong")
		}
		admission.Confirm(ctx)
		return func() {}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	defer server.Stop()
	healthpb.RegisterHealthServer(admission.Registrar(server, time.Minute, enter), health.NewServer())
	go server.Serve(admission.Listen(l, admission.Limits{Connections: 1024, PerClient: 256, FirstCall: time.Minute}))

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	client := healthpb.NewHealthClient(conn)
	_, err = client.Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(err)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "token", "secret")
	answer, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
	fmt.Println(answer.GetStatus(), err)
	// Output:
	// rpc error: code = Unauthenticated desc = the token is missing or wrong
	// SERVING <nil>
}
