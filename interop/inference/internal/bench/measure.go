package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// measured is one run of a load against a server.
type measured struct {
	outcome
	CPU time.Duration // of the server's process tree, while the load ran
}

// perSecond is how many right answers there were a second.
func (m *measured) perSecond() float64 { return float64(m.Served) / m.Took.Seconds() }

// each is the processor time of one request.
func (m *measured) each() time.Duration { return m.CPU / time.Duration(max(m.Served, 1)) }

// against runs a load in a process of its own. between, if it is set, is called when half of
// the time is over.
func (s *spec) against(v *server) (*measured, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-load")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() { _ = cmd.Wait() }()
	if _, err := in.Write(text); err != nil {
		return nil, err
	}
	in.Close()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, errors.New("the load process did not start")
	}
	before, start := v.usage(), time.Now()
	// Read the processor time at the end of the duration, before the load process writes its result: its
	// clients wait for their last responses first.
	time.Sleep(time.Until(start.Add(s.Duration)))
	after := v.usage()
	if !lines.Scan() {
		return nil, errors.New("the load process wrote no result")
	}
	m := &measured{CPU: after.cpu - before.cpu}
	if err := json.Unmarshal(lines.Bytes(), &m.outcome); err != nil {
		return nil, err
	}
	if m.Served == 0 {
		return nil, fmt.Errorf("%s: no request succeeded: %s", v.name, m.Error)
	}
	return m, nil
}

// rounds has the results of several runs of one way.
type rounds []*measured

func (r rounds) median(of func(*measured) float64) float64 {
	values := make([]float64, len(r))
	for i, m := range r {
		values[i] = of(m)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func (r rounds) rate() float64 { return r.median(func(m *measured) float64 { return m.perSecond() }) }
func (r rounds) cpu() float64 {
	return r.median(func(m *measured) float64 { return m.each().Seconds() })
}
func (r rounds) p50() float64 { return r.median(func(m *measured) float64 { return m.P50.Seconds() }) }
func (r rounds) p99() float64 { return r.median(func(m *measured) float64 { return m.P99.Seconds() }) }

// trouble returns the number of failed, wrong and lost requests, and the first error.
func (r rounds) trouble() (n int, first string) {
	for _, m := range r {
		n += m.Failed + m.Wrong + m.Lost
		if first == "" {
			first = m.Error
		}
	}
	return n, first
}

// way is a server with a load.
type way struct {
	name   string
	server *server
	spec   spec
	runs   rounds
}

// inTurn runs all ways in turn, n times. It prints the error of a way that fails, and removes the way.
func inTurn(ways []*way, n int) []*way {
	for range n {
		for i, w := range ways {
			if w == nil {
				continue
			}
			m, err := w.spec.against(w.server)
			if err != nil {
				fmt.Printf("%s: %v\n", w.name, err)
				ways[i] = nil
				continue
			}
			w.runs = append(w.runs, m)
		}
	}
	return slices.DeleteFunc(ways, func(w *way) bool { return w == nil })
}
