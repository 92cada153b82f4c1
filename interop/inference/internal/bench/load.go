package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errRefused is a refusal that allows a retry.
var errRefused = errors.New("refused")

// errWrong reports a response with wrong contents.
var errWrong = errors.New("wrong response")

// refusedError is any other refusal.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// client sends one request after the other.
type client interface {
	// once sends a request. verify checks each byte of the response.
	once(verify bool) error
	// cut begins a request and closes the connection.
	cut() error
	close()
}

// generate is the process that makes the load: a spec in, "begin" when it has warmed up, an
// outcome out.
func generate(in io.Reader, out io.Writer) error {
	debug.SetGCPercent(800) // the load shares the processors with the servers
	var s spec
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return err
	}
	o, err := s.run(func() { fmt.Fprintln(out, `"begin"`) })
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(o)
}

func (s *spec) dial(i int) (client, error) {
	if s.Protocol == "grpc" {
		return dialGRPC(s, i)
	}
	return dialHTTP(s, i)
}

// counts are one client's.
type counts struct {
	outcome
	times []time.Duration
}

func (s *spec) run(begin func()) (*outcome, error) {
	clients := make([]client, s.Clients)
	for i := range clients {
		c, err := s.dial(i)
		if err != nil {
			return nil, err
		}
		defer c.close()
		clients[i] = c
	}
	var measuring, over atomic.Bool
	results := make([]counts, s.Clients)
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { s.one(i, c, &results[i], &measuring, &over) })
	}
	time.Sleep(s.Warm)
	begin()
	start := time.Now()
	measuring.Store(true)
	time.Sleep(s.Duration)
	measuring.Store(false)
	took := time.Since(start)
	over.Store(true)
	wg.Wait()
	return gather(results, took), nil
}

// one is one client's work. Requests that end in the measured time count.
func (s *spec) one(i int, c client, r *counts, measuring, over *atomic.Bool) {
	cuts := s.Cut > 0 && i%s.Cut == s.Cut-1
	for n := 0; !over.Load(); n++ {
		if cuts && n%2 == 0 {
			if c.cut() == nil {
				r.Cut++
			}
			continue
		}
		start := time.Now()
		err := c.once(s.Verify || n%64 == 0)
		took := time.Since(start)
		if !measuring.Load() && err == nil {
			continue
		}
		var refused *refusedError
		switch {
		case err == nil:
			r.Served++
			r.times = append(r.times, took)
			continue
		case s.Retry && errors.Is(err, errRefused):
			r.Refused++
			time.Sleep(time.Millisecond)
			continue
		case errors.Is(err, errWrong):
			r.Wrong++
		case errors.As(err, &refused) || errors.Is(err, errRefused):
			r.Failed++
		default:
			r.Lost++
		}
		if r.Error == "" {
			r.Error = err.Error()
		}
		time.Sleep(time.Millisecond)
	}
}

func gather(results []counts, took time.Duration) *outcome {
	o := &outcome{Took: took}
	var times []time.Duration
	for i := range results {
		r := &results[i]
		o.Served += r.Served
		o.Refused += r.Refused
		o.Failed += r.Failed
		o.Wrong += r.Wrong
		o.Lost += r.Lost
		o.Cut += r.Cut
		if o.Error == "" {
			o.Error = r.Error
		}
		times = append(times, r.times...)
	}
	slices.Sort(times)
	if n := len(times); n > 0 {
		o.P50, o.P99, o.Max = times[n/2], times[min(n*99/100, n-1)], times[n-1]
	}
	return o
}

// connect opens a connection to the server.
func (s *spec) connect() (net.Conn, error) {

	return net.DialTimeout("tcp", s.Address, 10*time.Second)
}

// shared is memory under a name in /dev/shm.
type shared struct {
	name string
	data []byte
}

func (s *shared) remove() { _ = os.Remove("/dev/shm/" + s.name) }
