package main

import (
	"encoding/binary"
	"math"
	"time"
)

// spec is what the process that makes the load is told, as JSON on its standard input.
type spec struct {
	Protocol string // "v2" (REST with binary tensors), "bare" (the array as the body), "grpc"
	Address  string // host:port
	Model    string // "sobel"; others have an input x and an output y
	Height   int
	Width    int // 0: a vector of Height elements
	Clients  int
	Warm     time.Duration
	Duration time.Duration
	Tenant   string        // sent in the header X-Tenant; "" for none
	Region   bool          // by system shared memory
	Cut      int           // every so-many-th client cuts its connections off in the middle; 0: none does
	Retry    bool          // a refusal with Retry-After (or RESOURCE_EXHAUSTED) is no failure
	Verify   bool          // each answer, and not one in 64
	Pause    time.Duration // of a client between requests
}

// outcome is what it answers, as JSON on its standard output.
type outcome struct {
	Served  int           // requests with the right answer, in the measured time
	Refused int           // with a refusal that allows to come again
	Failed  int           // with another
	Wrong   int           // with a wrong answer
	Lost    int           // with none: the connection ended, or was silent
	Cut     int           // that this side cut off
	Took    time.Duration // the measured time
	P50     time.Duration
	P99     time.Duration
	Max     time.Duration
	Error   string // the first failure
}

// elements of an input.
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

// fill writes the input of a client: a slope of its own, from left to right, or a number of
// its own.
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

// edges is what the load's input, a slope from left to right, gives.
func edges(p []byte, width int) []byte {
	slope := byte(math.Float32frombits(binary.LittleEndian.Uint32(p[4:])))
	answer := make([]byte, len(p)/4)
	for i := range answer {
		answer[i] = 8 * slope
		if column := i % width; column == 0 || column == width-1 {
			answer[i] = 4 * slope
		}
	}
	return answer
}

// right tells whether an answer is what the client's input gives.
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
