package engine

import (
	"context"
	"errors"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/fair"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/memmgr/arena"
	"github.com/usmbridge/usmbridge/usmarray"
)

// Request is one request of a client. It is for one goroutine at a time.
type Request struct {
	model    *Model
	account  *account
	ticket   *fair.Ticket
	parent   context.Context
	began    time.Time
	deadline time.Time

	ctx    context.Context // ends at the deadline; made when it is first needed
	cancel context.CancelFunc

	inputs  []Input   // of the model, in its order
	outputs []Output  // likewise
	wanted  []*Output // in the order that the client asked for
	shapes  [][]int64 // of the outputs, where the model has told them
	arrays  []*usmarray.Array
	arena   *arena.Arena // of what the model allocates; nil where that is not the request's
	results []Result
	stages  Stages
	ran     bool
	counted bool // in the model's statistics
	ended   bool
}

func newRequest(ctx context.Context, m *Model, a *account, k *fair.Ticket, began time.Time) *Request {
	r := &Request{model: m, account: a, ticket: k, parent: ctx, began: began, deadline: began.Add(m.engine.o.Timeout)}
	r.inputs = make([]Input, len(m.def.Meta.Inputs))
	for i := range r.inputs {
		r.inputs[i].request, r.inputs[i].index = r, i
	}
	r.outputs = make([]Output, len(m.def.Meta.Outputs))
	for i := range r.outputs {
		r.outputs[i].request, r.outputs[i].index = r, i
	}
	return r
}

// Model is what the request is for.
func (r *Request) Model() *Model { return r.model }

// SetTimeout has the request end so long after its Begin, where the server's own timeout is
// not sooner. It comes before anything waits: before Fill. 0 and less change nothing.
func (r *Request) SetTimeout(d time.Duration) {
	if d <= 0 || r.ctx != nil {
		return
	}
	if t := r.began.Add(d); t.Before(r.deadline) {
		r.deadline = t
	}
}

// Context is the request's, with its deadline.
func (r *Request) Context() context.Context {
	if r.ctx == nil {
		r.ctx, r.cancel = context.WithDeadline(r.parent, r.deadline)
	}
	return r.ctx
}

// Stages are moments of a request's Run; zero where it did not come so far.
type Stages struct {
	Ready  time.Time // from when on it waited for its turn
	Turn   time.Time // when it had it
	Called time.Time // when the model's call was over
}

// Stages tells how far Run came.
func (r *Request) Stages() Stages { return r.stages }

// Deadline is when the request ends.
func (r *Request) Deadline() time.Time { return r.deadline }

// End gives back everything of the request: its memory, its regions, its turn and its place.
// What codec.Leases or Python hold of the memory stays valid. It may be called again, and at
// any point; nothing else of the request may be used afterwards.
func (r *Request) End() {
	if r.ended {
		return
	}
	r.ended = true
	r.count(false)
	r.ticket.Leave()
	for _, a := range r.arrays {
		a.Release()
	}
	r.arrays, r.results = nil, nil
	for i := range r.inputs {
		r.inputs[i].place.release()
		r.inputs[i].theirs.release()
	}
	for i := range r.outputs {
		r.outputs[i].place.release()
		r.outputs[i].theirs.release()
	}
	if r.arena != nil {
		if left := r.arena.End(); left.Blocks > 0 {
			r.model.stats.kept.Add(1)
			r.model.engine.log().Debug("a model keeps memory of a request", "model", r.model.def.Meta.Name, "tenant", r.account.label, "left", left)
		}
	}
	if r.cancel != nil {
		r.cancel()
	}
	r.model.engine.accounts.leave(r.account)
	r.model.engine.discount(r.model)
}

// count puts the request into the model's statistics, once.
func (r *Request) count(ok bool) {
	if r.counted {
		return
	}
	r.counted = true
	r.model.stats.done(time.Since(r.began), ok)
}

// misuse is a call out of order, which is the transport's mistake.
func misuse(what string) error {
	return &oip.Error{Kind: oip.Internal, Message: "the server failed", Err: errors.New("engine: " + what)}
}
