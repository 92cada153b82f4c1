package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
)

// nameOf returns the name in a descriptor, which is a path of one name.
func nameOf(d *flight.FlightDescriptor) (string, error) {
	if d == nil || d.Type != flight.DescriptorPATH || len(d.Path) != 1 {
		return "", kindErr(ErrName, "the descriptor is not a path of one name")
	}
	if err := CheckName(d.Path[0]); err != nil {
		return "", err
	}
	return d.Path[0], nil
}

// DoPut receives a tensor and stores it when the client has sent all of it. Until then, and if it fails,
// the former tensor of the name stays.
func (s *Server) DoPut(stream flight.FlightService_DoPutServer) error {
	r := codec.NewReceiver(s.gate, stream)
	return s.watched(stream.Context(), "DoPut", r.Received, func() error {
		name, t, err := s.put(stream.Context(), r)
		if err != nil {
			return named("DoPut", name, err)
		}
		return stream.Send(&flight.PutResult{AppMetadata: fmt.Appendf(nil, `{"rows":%d,"bytes":%d}`, t.rows, t.bytes())})
	})
}

// put receives a tensor and stores it. It returns the name of the tensor, also on error if it is known.
func (s *Server) put(ctx context.Context, r *codec.Receiver) (name string, t *tensor, err error) {
	in := &incoming{begin: func(d *data) (b *builder, err error) {
		if name, err = nameOf(d.descriptor); err != nil {
			return nil, err
		}
		return s.begin(ctx, d)
	}}
	for err == nil {
		err = r.Next(in.Receive)
	}
	if errors.Is(err, io.EOF) {
		if err = in.end(); err == nil {
			err = in.builder.done()
		}
	}
	if err == nil {
		t = in.builder.tensor
		return name, t, s.store.commit(name, t)
	}
	if in.builder != nil {
		in.builder.tensor.release()
	}
	return name, nil, err
}

// begin reads the schema and returns a builder.
func (s *Server) begin(ctx context.Context, d *data) (*builder, error) {
	schema, t, plain, err := parseSchema(d.header)
	if err != nil {
		return nil, err
	}
	b := &builder{tensor: newTensor(schema, t), plain: plain, from: s.o.Memory, ctx: ctx, wait: s.o.MemoryWait, want: -1, stage: s.stage, limit: s.o.MaxTensor}
	if v, ok := schema.Metadata().GetValue(RowsKey); ok {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return nil, malformed("%s is %.20q, not a number of rows", RowsKey, v)
		}
		if int64(n) > s.o.MaxTensor/int64(b.tensor.width) {
			return nil, limitError("rows of a tensor", int64(n), s.o.MaxTensor/int64(b.tensor.width))
		}
		b.want = n
	}
	return b, nil
}

// incoming receives the messages of one stream: a schema, then record batches.
type incoming struct {
	begin   func(d *data) (*builder, error) // called with the schema
	builder *builder                        // nil before the schema
	err     error                           // of Receive; gRPC's client returns it as a status, without its kind
}

// Receive implements codec.Receivable.
func (s *incoming) Receive(in *codec.Incoming) error {
	s.err = s.message(in)
	return s.err
}

func (s *incoming) message(in *codec.Incoming) (err error) {
	var d data
	first := s.builder == nil
	err = d.read(in, func(in *codec.Incoming, n int) error {
		if first {
			return malformed("the message with the schema has a body")
		}
		return s.builder.message(&d, in, n)
	})
	switch {
	case err != nil:
		return err
	case first:
		s.builder, err = s.begin(&d)
		return err
	case len(d.header) > 0 && !d.hasBody: // a batch without rows
		return s.builder.message(&d, in, 0)
	}
	return nil
}

// end checks that the stream had a schema.
func (s *incoming) end() error {
	if s.builder == nil {
		return malformed("the stream ended before the schema")
	}
	return nil
}
