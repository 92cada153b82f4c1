package flight

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
)

// PutResult is the metadata of the answer to a put, as JSON.
type PutResult struct {
	Rows  int   `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// nameOf returns the name in a descriptor, which is a path of one name.
func nameOf(d *flight.FlightDescriptor) (string, error) {
	if d == nil || d.Type != flight.DescriptorPATH || len(d.Path) != 1 {
		return "", kindErr(ErrName, "the descriptor is not a path of one name")
	}
	return d.Path[0], CheckName(d.Path[0])
}

// DoPut receives a tensor and stores it when the client has sent all of it. Until then, and if it fails,
// the former tensor of the name stays.
func (s *Server) DoPut(stream flight.FlightService_DoPutServer) error {
	r := codec.NewReceiver(s.gate, stream)
	return s.watched(stream.Context(), "DoPut", r.Received, func() error {
		name, result, err := s.put(stream, r)
		if err != nil {
			return named("DoPut", name, err)
		}
		b, err := json.Marshal(result)
		if err != nil {
			return err
		}
		return stream.Send(&flight.PutResult{AppMetadata: b})
	})
}

func (s *Server) put(stream flight.FlightService_DoPutServer, r *codec.Receiver) (name string, result PutResult, err error) {
	var b *builder
	defer func() {
		if b != nil && b.tensor != nil {
			b.tensor.release()
		}
	}()
	for first := true; ; first = false {
		var d data
		err := r.Next(func(in *codec.Incoming) error {
			read := func(in *codec.Incoming, n int) error { return b.message(&d, in, n) }
			if first {
				read = func(*codec.Incoming, int) error { return malformed("the message with the schema has a body") }
			}
			if err := d.read(in, read); err != nil || !first {
				return err
			}
			if name, err = nameOf(d.descriptor); err != nil {
				return err
			}
			b, err = s.begin(stream, &d)
			return err
		})
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return name, result, err
		}
		if !first && len(d.header) > 0 && !d.hasBody {
			if err := b.empty(&d); err != nil {
				return name, result, err
			}
		}
	}
	if b == nil {
		return name, result, malformed("the stream ended before the schema")
	}
	if err := b.done(); err != nil {
		return name, result, err
	}
	t := b.tensor
	b.tensor = nil
	result = PutResult{Rows: t.rows, Bytes: t.bytes()}
	return name, result, s.store.commit(name, t)
}

// begin reads the schema and returns a builder.
func (s *Server) begin(stream flight.FlightService_DoPutServer, d *data) (*builder, error) {
	schema, t, err := parseSchema(d.header)
	if err != nil {
		return nil, err
	}
	b := &builder{tensor: newTensor(schema, t), from: s.o.Memory, ctx: stream.Context(), wait: s.o.MemoryWait, want: -1, stage: s.stage, limit: s.o.MaxTensor}
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

// message reads the body of a record batch.
func (b *builder) message(d *data, in *codec.Incoming, n int) error {
	d.hasBody = true
	elements, width := b.tensor.elements()
	rec, err := parseBatch(d.header, elements, width)
	if err != nil {
		return err
	}
	if rec.body > n {
		return malformed("a body of %d bytes, want %d as in the header", n, rec.body)
	}
	return b.batch(in, rec)
}

// empty handles a record batch without a body, which must have no rows.
func (b *builder) empty(d *data) error {
	elements, width := b.tensor.elements()
	rec, err := parseBatch(d.header, elements, width)
	if err == nil && rec.rows > 0 {
		err = malformed("%d rows without a body", rec.rows)
	}
	return err
}
