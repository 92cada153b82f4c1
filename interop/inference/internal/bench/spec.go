package main

import (
	"encoding/binary"
	"math"
	"time"
)

// spec describes a load. The load process reads it as JSON from its standard input.
type spec struct {
	Protocol string // "v2" (REST with binary tensors), "bare" (the array as the body), "grpc"
	Address  string // host:port
	Model    string // "sobel", or a model with an input x and an output y
	Height   int
	Width    int // 0: a vector of Height elements
	Clients  int
	Warm     time.Duration
	Duration time.Duration
	Region   bool // use system shared memory
	Cut      int  // every n-th client closes its connections in the middle of requests; 0: none
	Retry    bool // a refusal with Retry-After (or RESOURCE_EXHAUSTED) is not a failure
	Verify   bool // check each response, instead of one in 64
}

// outcome is the result of a load, as JSON.
type outcome struct {
	Served  int           // requests with a correct response, in the measured time
	Refused int           // refusals that allow a retry
	Failed  int           // other errors
	Wrong   int           // incorrect responses
	Lost    int           // no response: the connection ended or timed out
	Cut     int           // connections that the client closed
	Took    time.Duration // the measured time
	P50     time.Duration
	P99     time.Duration
	Max     time.Duration
	Error   string // the first failure
}

// elements returns the number of elements of an input.
func (s *spec) elements() int {
	if s.Width == 0 {
		return s.Height
	}
	return s.Height * s.Width
}

func (s *spec) input() int { return 4 * s.elements() }

func (s *spec) output() int {
	if s.Model == "sobel" {
		return s.elements()
	}
	return s.input()
}

// fill writes the input of a client: a slope from left to right with its own gradient, or its own
// numbers.
func (s *spec) fill(p []byte, client int) {
	slope := float32(client%7 + 1)
	for i := range s.elements() {
		v := float32(client + i%1000)
		if s.Model == "sobel" {
			v = slope * float32(i%s.Width)
		}
		binary.LittleEndian.PutUint32(p[4*i:], math.Float32bits(v))
	}
}

// right reports whether a response is correct for the input of a client.
func (s *spec) right(p, input []byte, client int) bool {
	if len(p) != s.output() {
		return false
	}
	switch s.Model {
	case "sobel":
		inner, edge := byte(8*(client%7+1)), byte(4*(client%7+1))
		for i, v := range p {
			want := inner
			if column := i % s.Width; column == 0 || column == s.Width-1 {
				want = edge
			}
			if v != want {
				return false
			}
		}
		return true
	case "identity":
		return string(p) == string(input)
	}
	return true
}
