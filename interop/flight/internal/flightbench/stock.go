package main

import (
	"context"
	"errors"
	"net"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/usmbridge/usmbridge/interop/flight/usmarrow"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// stock is the client and server of arrow-go's documentation. Both copy the received data to memory of the
// pool, as package flight does.
type stock struct {
	flight.BaseFlightServer
	pool   memmgr.Resource
	record arrow.RecordBatch
	server *grpc.Server
	conn   *grpc.ClientConn
	client flight.Client
}

func newStock(path string, a *usmarray.Array, pool memmgr.Resource) (*stock, error) {
	column, err := usmarrow.ToArrow(a)
	if err != nil {
		return nil, err
	}
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "tensor", Type: column.DataType()}}, nil)
	s := &stock{pool: pool, record: array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))}
	s.server = grpc.NewServer(grpc.MaxRecvMsgSize(1<<30), grpc.MaxSendMsgSize(1<<30))
	flight.RegisterFlightServiceServer(s.server, s)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	go func() { _ = s.server.Serve(l) }()
	s.conn, err = grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		return nil, err
	}
	s.client = flight.NewClientFromConn(s.conn, nil)
	return s, nil
}

func (s *stock) close() {
	s.conn.Close()
	s.server.Stop()
	s.record.Release()
}

// keep copies the data of a reader to memory of the pool.
func (s *stock) keep(r *flight.Reader) error {
	defer r.Release()
	for r.Next() {
		a, err := usmarrow.FromArrow(r.RecordBatch().Column(0))
		if err != nil {
			return err
		}
		kept, err := a.Copy(s.pool)
		a.Release()
		if err != nil {
			return err
		}
		kept.Release()
	}
	return r.Err()
}

// DoPut implements flight.FlightServer.
func (s *stock) DoPut(stream flight.FlightService_DoPutServer) error {
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	return errors.Join(s.keep(r), stream.Send(&flight.PutResult{}))
}

// DoGet implements flight.FlightServer.
func (s *stock) DoGet(_ *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	w := flight.NewRecordWriter(stream, ipc.WithSchema(s.record.Schema()))
	return errors.Join(w.Write(s.record), w.Close())
}

func (s *stock) put() error {
	stream, err := s.client.DoPut(context.Background())
	if err != nil {
		return err
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(s.record.Schema()))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"x"}})
	if err := errors.Join(w.Write(s.record), w.Close(), stream.CloseSend()); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func (s *stock) get() error {
	stream, err := s.client.DoGet(context.Background(), &flight.Ticket{Ticket: []byte("x")})
	if err != nil {
		return err
	}
	r, err := flight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	return s.keep(r)
}
