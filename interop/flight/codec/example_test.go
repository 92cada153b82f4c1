package codec_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
)

const imageField = 1 // of type bytes in the service's .proto file

// image is a message with one large field, which gRPC sends from the memory of a buffer.
type image struct {
	leases codec.Leases
	pixels memmgr.Buffer
}

// Buffers implements codec.Outgoing.
func (m *image) Buffers() (mem.BufferSlice, error) {
	data, err := m.pixels.Bytes()
	if err != nil {
		return nil, err
	}
	data = data[:m.pixels.Requested()]
	head := protowire.AppendTag(nil, imageField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(data)))
	return mem.BufferSlice{mem.SliceBuffer(head), m.leases.Memory(m.pixels, data)}, nil
}

// receive reads a message, and its image into memory of a pool. The pool can refuse the memory before
// a byte of the image is read. The caller releases the buffer, also after an error.
func receive(in *codec.Incoming, pool *memmgr.Pool) (pixels memmgr.Buffer, err error) {
	for {
		field, typ, err := in.Field()
		if errors.Is(err, io.EOF) {
			return pixels, nil
		}
		if err != nil {
			return pixels, err
		}
		if field != imageField || pixels.Valid() {
			if err := in.Skip(typ); err != nil {
				return pixels, err
			}
			continue
		}
		n, err := in.Length(typ)
		if err != nil {
			return pixels, err
		}
		if pixels, err = memmgr.New(pool, memmgr.Request{Size: uintptr(n), Tag: "image"}); err != nil {
			return pixels, err
		}
		data, err := pixels.Bytes()
		if err != nil {
			return pixels, err
		}
		if err := in.ReadFull(data[:n]); err != nil {
			return pixels, err
		}
	}
}

// A client sends 1 MiB from the memory of a pool, and the server receives it into the memory of another
// pool, which bounds the memory that clients can occupy.
func Example() {
	pool := memmgr.NewPool(memmgr.Host(), memmgr.WithLimit(64<<20))
	gate := codec.NewGate(codec.Limits{MaxMessage: 16 << 20})
	received := make(chan int, 1)
	upload := func(_ any, stream grpc.ServerStream) error {
		leave, err := gate.Enter()
		if err != nil {
			return err // a *LimitError: ResourceExhausted
		}
		defer leave()
		var size int
		err = codec.NewReceiver(gate, stream).Next(func(in *codec.Incoming) error {
			b, err := receive(in, pool)
			if err == nil {
				size = int(b.Requested())
			}
			b.Release()
			return err
		})
		received <- size
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec.New(0)))
	defer server.Stop()
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "images", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		{StreamName: "upload", ClientStreams: true, Handler: upload},
	}}, nil)
	go server.Serve(l)

	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec.New(0))))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	own := memmgr.NewPool(memmgr.Host())
	pixels, err := memmgr.New(own, memmgr.Request{Size: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pixels.Release()
	ctx := context.Background()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/images/upload")
	if err != nil {
		log.Fatal(err)
	}
	message := &image{pixels: pixels}
	if err := stream.SendMsg(message); err != nil {
		log.Fatal(err)
	}
	if err := message.leases.Wait(ctx); err != nil { // gRPC has sent the bytes
		log.Fatal(err)
	}
	fmt.Println("received", <-received)
	// Output: received 1048576
}
