package flight

import (
	"context"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
)

// BatchHeader is the metadata key of a DoGet with the number of bytes per message that the client
// requests, in decimal, instead of ServerOptions.Batch.
const BatchHeader = "usmbridge-batch-bytes"

// DoGet sends the tensor that has the name when the call begins.
func (s *Server) DoGet(ticket *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	name := string(ticket.GetTicket())
	t, err := s.store.tensor(name)
	if err != nil {
		return named("DoGet", name, err)
	}
	size := s.o.Batch
	for _, v := range metadata.ValueFromIncomingContext(stream.Context(), BatchHeader) {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.release()
			return named("DoGet", name, malformed("%s is %.20q, not a number of bytes", BatchHeader, v))
		}
		size = min(n, s.gate.Limits().MaxMessage)
	}
	var leases codec.Leases
	out := &sender{ctx: stream.Context(), leases: &leases, stage: s.stage, send: stream.SendMsg}
	// Small messages are copied and have no leases.
	moved := func() int64 { return leases.Moved() + out.sent.Load() }
	return s.watched(stream.Context(), "DoGet", moved, func() error {
		defer t.release()
		err := out.tensor(t, nil, size)
		if err == nil {
			err = leases.Wait(stream.Context())
		} else {
			leases.Abandon()
		}
		if err != nil {
			return named("DoGet", name, err)
		}
		return nil
	})
}

// sender sends tensors as FlightData.
type sender struct {
	ctx    context.Context
	leases *codec.Leases
	stage  *stage // for memory that the host cannot read; else nil
	send   func(any) error
	sent   atomic.Int64 // messages, to observe whether the peer reads
}

// message sends one message.
func (s *sender) message(d *data) error {
	err := s.send(d)
	if err == nil {
		s.sent.Add(1)
	}
	return err
}

// tensor sends the schema and then the rows, in messages of about size bytes.
func (s *sender) tensor(t *tensor, d *flight.FlightDescriptor, size int) error {
	if err := s.message(&data{descriptor: d, header: schemaHeader(t.schema)}); err != nil {
		return err
	}
	if s.stage != nil {
		size = min(size, stageBytes)
	}
	most := max(size/t.width, 1)
	header, padding, rows := []byte(nil), 0, -1
	for _, c := range t.chunks {
		for first := 0; first < c.rows; {
			n := min(most, c.rows-first)
			body, values, err := s.piece(t, c, first, n)
			if err != nil {
				return err
			}
			if n != rows {
				if header, padding, err = batchHeader(t.schema, t.typ, n, values); err != nil {
					body.Free()
					return err
				}
				rows = n
			}
			if padding > 0 {
				body = append(body, mem.SliceBuffer(make([]byte, padding)))
			}
			if err := s.message(&data{header: header, body: body}); err != nil {
				return err
			}
			first += n
		}
	}
	return nil
}

// leaseBytes is the size of the pieces of a message. gRPC releases them one by one, which shows that the
// peer still reads.
const leaseBytes = 1 << 20

// piece returns n rows of a chunk as buffers of gRPC.
func (s *sender) piece(t *tensor, c chunk, first, n int) (mem.BufferSlice, []byte, error) {
	at, size := c.offset+first*t.width, n*t.width
	if s.stage != nil {
		p, values, err := s.stage.send(s.ctx, s.leases, c.buffer, at, size)
		return mem.BufferSlice{p}, values, err
	}
	b, err := c.buffer.Bytes()
	if err != nil {
		return nil, nil, err
	}
	values := b[at : at+size]
	var pieces mem.BufferSlice
	for left := values; len(left) > 0; {
		k := min(len(left), leaseBytes)
		pieces = append(pieces, s.leases.Memory(c.buffer, left[:k]))
		left = left[k:]
	}
	return pieces, values, nil
}
