package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// spec describes a load.
type spec struct {
	protocol      string // "v2" (REST with binary tensors), "bare" (the array as the body), "grpc"
	address       string // host:port
	model         string // "sobel", or a model with an input x and an output y
	height, width int    // width 0: a vector of height elements
	clients       int
	region        bool // use system shared memory
}

func (s spec) to(protocol, address string) spec {
	s.protocol, s.address = protocol, address
	return s
}

func (s *spec) elements() int { return s.height * max(s.width, 1) }

func (s *spec) input() int { return 4 * s.elements() }

func (s *spec) output() int {
	if s.model == "sobel" {
		return s.elements()
	}
	return s.input()
}

// names returns the names of the input and the output.
func (s *spec) names() (in, out string) {
	if s.model == "sobel" {
		return "luminance", "edges"
	}
	return "x", "y"
}

// data returns the input of a client: a slope from left to right with its own gradient, or its own numbers.
func (s *spec) data(client int) []byte {
	var p []byte
	for i := range s.elements() {
		v := float32(client + i%1000)
		if s.model == "sobel" {
			v = float32(client%7+1) * float32(i%s.width)
		}
		p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
	}
	return p
}

// check returns an error for a response with a wrong length or, if each byte is verified, wrong contents.
func (s *spec) check(p, input []byte, client int, verify bool) error {
	right := len(p) == s.output()
	switch {
	case !right || !verify:
	case s.model == "identity":
		right = string(p) == string(input)
	case s.model == "sobel":
		inner, edge := byte(8*(client%7+1)), byte(4*(client%7+1))
		for i, v := range p {
			column := i % s.width
			right = right && v == map[bool]byte{true: edge, false: inner}[column == 0 || column == s.width-1]
		}
	}
	if !right {
		return errors.New("wrong response")
	}
	return nil
}

// client sends one request after the other.
type client interface {
	// once sends a request. verify checks each byte of the response.
	once(verify bool) error
	close()
}

func (s *spec) dial(i int) (client, error) {
	if s.protocol == "grpc" {
		return dialGRPC(s, i)
	}
	return dialHTTP(s, i)
}

// against runs a load against a server: a warm-up, and the measured time.
func (s *spec) against(v *server, d time.Duration) (*measured, error) {
	var all []client
	for i := range s.clients {
		c, err := s.dial(i)
		if err != nil {
			return nil, err
		}
		defer c.close()
		all = append(all, c)
	}
	m := &measured{}
	var mu sync.Mutex // guards m and times
	var times []time.Duration
	var measuring, over atomic.Bool
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			var own []time.Duration
			for n := 0; !over.Load(); n++ {
				start := time.Now()
				err := c.once(n%64 == 0)
				if err == nil && measuring.Load() {
					own = append(own, time.Since(start))
				}
				if err != nil {
					mu.Lock()
					m.failed++
					m.problem = err.Error()
					mu.Unlock()
					time.Sleep(time.Millisecond)
				}
			}
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	time.Sleep(500 * time.Millisecond)
	before, start := v.cpu(), time.Now()
	measuring.Store(true)
	time.Sleep(d)
	measuring.Store(false)
	took, used := time.Since(start), v.cpu()-before
	over.Store(true)
	wg.Wait()
	if len(times) == 0 {
		return nil, fmt.Errorf("no request succeeded: %s", m.problem)
	}
	slices.Sort(times)
	n := len(times)
	m.rate, m.cpu = float64(n)/took.Seconds(), used.Seconds()/float64(n)
	m.p50, m.p99 = times[n/2].Seconds(), times[n*99/100].Seconds()
	return m, nil
}
