package flight_test

import (
	"context"
	"fmt"
	"log"

	"github.com/usmbridge/usmbridge/interop/flight"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// A server keeps tensors in a pool, and a client stores one and reads it back.
func Example() {
	ctx := context.Background()
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(1<<30))
	server, err := flight.NewServer(flight.ServerOptions{Memory: pool})
	if err != nil {
		log.Fatal(err)
	}
	location, err := flight.ParseLocation("grpc+tcp://127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	listener, at, err := server.Listen(location) // at has the port
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Close()

	client, err := flight.Dial(at.String(), flight.ClientOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	a, err := usmarray.FromSlice(pool, []float32{1, 2, 3, 4, 5, 6}, []int{2, 3})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Release()
	if err := client.Put(ctx, "picture", a); err != nil {
		log.Fatal(err)
	}
	b, err := client.Get(ctx, "picture", pool)
	if err != nil {
		log.Fatal(err)
	}
	defer b.Release()
	fmt.Println(b)
	// Output:
	// [[1. 2. 3.]
	//  [4. 5. 6.]]
}
