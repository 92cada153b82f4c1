package flight

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/usmbridge/usmbridge/interop/flight/codec"
	"github.com/usmbridge/usmbridge/memmgr"
)

// info returns the description of a tensor. Its only endpoint is this server.
func info(name string, t *tensor) *flight.FlightInfo {
	return &flight.FlightInfo{
		Schema:           flight.SerializeSchema(t.schema, memory.DefaultAllocator),
		FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{name}},
		Endpoint:         []*flight.FlightEndpoint{{Ticket: &flight.Ticket{Ticket: []byte(name)}}},
		TotalRecords:     int64(t.rows),
		TotalBytes:       t.bytes(),
		Ordered:          true,
	}
}

// described returns the description of the tensor that a descriptor names.
func (s *Server) described(op string, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	name, err := nameOf(d)
	if err != nil {
		return nil, named(op, "", err)
	}
	t, err := s.store.tensor(name)
	if err != nil {
		return nil, named(op, name, err)
	}
	defer t.release()
	return info(name, t), nil
}

// GetFlightInfo returns the description of a tensor.
func (s *Server) GetFlightInfo(_ context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return s.described("GetFlightInfo", d)
}

// GetSchema returns the schema of a tensor.
func (s *Server) GetSchema(_ context.Context, d *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	f, err := s.described("GetSchema", d)
	return &flight.SchemaResult{Schema: f.GetSchema()}, err
}

// ListFlights returns the descriptions of all tensors whose names begin with the expression of the
// criteria, sorted by name.
func (s *Server) ListFlights(c *flight.Criteria, stream flight.FlightService_ListFlightsServer) error {
	var sent atomic.Int64
	return s.watched(stream.Context(), "ListFlights", sent.Load, func() error {
		for _, name := range s.store.Names(string(c.GetExpression())) {
			t, err := s.store.tensor(name)
			if err != nil {
				continue // the tensor was freed after Names returned
			}
			described := info(name, t)
			t.release()
			if err := stream.Send(described); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	})
}

// The actions of DoAction.
const (
	ActionFree  = "free"  // body: the name of a tensor
	ActionStats = "stats" // no body; the answer is Stats as JSON
)

// Stats are the counters of a server.
type Stats struct {
	Tensors  int   `json:"tensors"`
	Bytes    int64 `json:"bytes"`     // of the tensors' rows
	Streams  int   `json:"streams"`   // running calls, including a call that requested the counters
	InFlight int64 `json:"in_flight"` // bytes of messages that are being read
	Sending  int64 `json:"sending"`   // bytes that gRPC holds in this process
	// Memory has the counters of the resource, by the names of memmgr.Stats.Map; nil if it has none.
	Memory map[string]int64 `json:"memory,omitempty"`
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	var v Stats
	v.Tensors, v.Bytes = s.store.Size()
	v.Streams, v.InFlight = s.gate.Streams(), s.gate.InFlight()
	_, v.Sending = codec.Outstanding()
	if r, ok := memmgr.As[interface{ Stats() memmgr.Stats }](s.o.Memory); ok {
		m := r.Stats()
		v.Memory = m.Map()
	}
	return v
}

// maxAnswer bounds the answer of an ActionFunc; gRPC clients accept 4 MiB by default.
const maxAnswer = 1 << 20

// DoAction frees a tensor, returns the counters, or calls an action of the service.
func (s *Server) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	switch a.GetType() {
	case ActionFree:
		return s.store.Free(string(a.GetBody()))
	case ActionStats:
		b, err := json.Marshal(s.Stats())
		if err != nil {
			return err
		}
		return stream.Send(&flight.Result{Body: b})
	default:
		return s.ownAction(a, stream)
	}
}

func (s *Server) ownAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	f := s.o.Actions[a.GetType()]
	if f == nil {
		return status.Errorf(codes.Unimplemented, "flight: DoAction: unknown action %.40q; use %s, %s, or an action that ListActions returns", a.GetType(), ActionFree, ActionStats)
	}
	op := "DoAction " + a.GetType()
	answer, err := f(stream.Context(), a.GetBody())
	if err == nil && len(answer) > maxAnswer {
		err = limitError("bytes of an answer", int64(len(answer)), maxAnswer)
	}
	if err != nil {
		return named(op, "", err)
	}
	return stream.Send(&flight.Result{Body: answer})
}

// ListActions lists the actions, sorted by type.
func (s *Server) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	actions := map[string]string{
		ActionFree:  "remove a tensor; body: its name",
		ActionStats: "counters of the server and of its memory, as JSON",
	}
	for name := range s.o.Actions {
		actions[name] = "an action of this service"
	}
	for _, name := range slices.Sorted(maps.Keys(actions)) {
		if err := stream.Send(&flight.ActionType{Type: name, Description: actions[name]}); err != nil {
			return err
		}
	}
	return nil
}
