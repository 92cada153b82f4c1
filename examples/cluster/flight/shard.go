package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/usmbridge/usmbridge/interop/flight"
)

// actionCompute asks a shard to compute: body and answer are JSON.
const actionCompute = "compute"

// task names what is computed of what: of each shard of From that the server has, one of
// To, with the same rows.
type task struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// done is the answer.
type done struct {
	Process int      `json:"process"`
	Place   string   `json:"place"`
	Rows    [][2]int `json:"rows"` // first, and the one after the last
	Seconds float64  `json:"seconds"`
}

// serve is a shard: a Flight server that computes on what it has, until the context ends
// or, when it is attached, its input does.
func serve(ctx context.Context, at string, attached bool, in io.Reader, out io.Writer) (err error) {
	location, err := flight.ParseLocation(at)
	if err != nil {
		return err
	}
	w, err := openWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var s *flight.Server
	var one sync.Mutex // Numba compiles once, and one Python function runs at a time
	s, err = flight.NewServer(flight.ServerOptions{Memory: w.memory, Actions: map[string]flight.ActionFunc{
		actionCompute: func(ctx context.Context, body []byte) ([]byte, error) {
			one.Lock()
			defer one.Unlock()
			return w.compute(ctx, s.Store(), body)
		},
	}})
	if err != nil {
		return err
	}
	l, location, err := s.Listen(location)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if attached {
		go func() {
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
	}
	fmt.Fprintf(out, "listening on %v\n", location)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		s.Close()
		err = <-ended
	}
	s.Store().Clear()
	return err
}

// compute answers an action.
func (w *worker) compute(ctx context.Context, store *flight.Store, body []byte) ([]byte, error) {
	var t task
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, fmt.Errorf("%w: the body of %s: %w", flight.ErrStream, actionCompute, err)
	}
	answer := done{Process: os.Getpid(), Place: w.place()}
	start := time.Now()
	for _, name := range store.Names(t.From + "@") {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		shard, err := store.Shard(name)
		if err != nil {
			return nil, err
		}
		rows, err := store.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		found, err := w.apply(rows)
		rows.Release()
		if err != nil {
			return nil, err
		}
		err = store.PutShard(t.To+strings.TrimPrefix(name, t.From), found, shard)
		found.Release()
		if err != nil {
			return nil, err
		}
		answer.Rows = append(answer.Rows, [2]int{shard.First, shard.First + shard.Rows})
	}
	if answer.Rows == nil {
		return nil, fmt.Errorf("%w: no rows of %q", flight.ErrNotFound, t.From)
	}
	answer.Seconds = time.Since(start).Seconds()
	return json.Marshal(answer)
}
