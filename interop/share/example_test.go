//go:build linux

package share_test

import (
	"context"
	"fmt"
	"time"

	"github.com/usmbridge/usmbridge/interop/share"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
	"github.com/usmbridge/usmbridge/usmarray"
)

// One process publishes an array, and another one attaches it and writes to it. In this example, both are
// the same process.
func Example() {
	ctx := context.Background()
	segments, err := segment.NewHost(segment.PeersWrite)
	if err != nil {
		fmt.Println(err)
		return
	}
	pool := memmgr.NewPool(segments)
	frame, _ := usmarray.Zeros(pool, usmarray.Float32, []int{480, 640})
	defer frame.Release()
	server, err := share.Listen(ctx, "example-frames", share.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = server.Publish(ctx, "frame", frame)

	peer, err := share.Dial(ctx, "example-frames", share.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	same, _ := peer.Attach(ctx, "frame")
	_ = same.SetAt(float32(1.5), 479, 639)
	same.Release()

	fmt.Println(frame.At(479, 639))
	_ = peer.Close()
	_ = server.Close()
	for server.Stats().Peers > 0 { // the end of the lease is reported in the background
		time.Sleep(time.Millisecond)
	}
	// Output: 1.5 <nil>
}
