package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/usmbridge/usmbridge/interop/flight"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/usmarray"
)

// settings are the client's.
type settings struct {
	in      string
	shards  []string // locations; none: two processes are started
	program []string // what a shard is started as; none: this program
}

// The tensors: the picture, the same kept twice, and what the shards find.
const (
	picture = "picture"
	safe    = "picture-twice"
	grey    = "luminance"
)

func run(ctx context.Context, s settings, out io.Writer) (err error) {
	w, err := openWorker()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	rows, err := readPicture(s.in, w.memory)
	if err != nil {
		return err
	}
	defer rows.Release()
	locations := s.shards
	var started *processes
	if locations == nil {
		if started, err = start(ctx, s.program, 2); err != nil {
			return err
		}
		defer started.stop()
		locations = started.locations
		fmt.Fprintf(out, "processes: the client %d, shards %d and %d\n", os.Getpid(), started.pid(0), started.pid(1))
	}
	cluster, err := flight.NewCluster(locations, flight.ClientOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	if err := w.job(ctx, cluster, rows, out); err != nil {
		return err
	}
	if started == nil {
		return free(ctx, cluster)
	}
	return lose(ctx, started, cluster, rows, w.memory, out)
}

// job puts the picture, has the shards compute, gathers and compares.
func (w *worker) job(ctx context.Context, cluster *flight.Cluster, rows *usmarray.Array, out io.Writer) error {
	begin := time.Now()
	if err := cluster.Put(ctx, picture, rows, 1); err != nil {
		return err
	}
	fmt.Fprintf(out, "put:       %v of %v, %.1f MB in %.3f s\n", rows.Shape(), rows.DataType(), float64(rows.NBytes())/1e6, time.Since(begin).Seconds())
	answers, err := compute(ctx, cluster)
	if err != nil {
		return err
	}
	for _, a := range answers {
		for _, r := range a.Rows {
			fmt.Fprintf(out, "computed:  rows %4d to %4d by %d in %s, %.3f s\n", r[0], r[1]-1, a.Process, a.Place, a.Seconds)
		}
	}
	begin = time.Now()
	gathered, err := cluster.Get(ctx, grey, w.memory)
	if err != nil {
		return err
	}
	defer gathered.Release()
	took := time.Since(begin)
	alone, err := w.apply(rows)
	if err != nil {
		return err
	}
	defer alone.Release()
	same, err := equal(gathered, alone)
	if err != nil {
		return err
	}
	if !same {
		return errors.New("what the shards found is not what one process finds")
	}
	fmt.Fprintf(out, "gathered:  %v in %.3f s, equal to one process's\n", gathered.Shape(), took.Seconds())
	return nil
}

// compute asks all shards at a time.
func compute(ctx context.Context, cluster *flight.Cluster) ([]done, error) {
	body, err := json.Marshal(task{From: picture, To: grey})
	if err != nil {
		return nil, err
	}
	clients := cluster.Clients()
	answers := make([]done, len(clients))
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range clients {
		group.Go(func() error {
			answer, err := c.Action(ctx, actionCompute, body)
			if err != nil {
				return err
			}
			return json.Unmarshal(answer, &answers[i])
		})
	}
	return answers, group.Wait()
}

// lose kills a shard that has computed, and shows what that means for what was there
// once and for what was there twice.
func lose(ctx context.Context, p *processes, cluster *flight.Cluster, rows *usmarray.Array, memory memmgr.Resource, out io.Writer) error {
	if err := cluster.Put(ctx, safe, rows, 2); err != nil {
		return err
	}
	fmt.Fprintf(out, "killed:    shard %d\n", p.pid(1))
	if err := p.kill(1); err != nil {
		return err
	}
	a, err := cluster.Get(ctx, grey, memory)
	var lost *flight.ShardError
	if !errors.As(err, &lost) {
		if err == nil {
			a.Release()
		}
		return fmt.Errorf("a killed shard was not reported: %w", err)
	}
	for _, m := range lost.Missing {
		fmt.Fprintf(out, "reported:  rows %4d to %4d of %q are nowhere any more\n", m.First, m.First+m.Rows-1, lost.Name)
	}
	for _, c := range lost.Causes {
		fmt.Fprintf(out, "           %v\n", c)
	}
	if a, err = cluster.Get(ctx, safe, memory); err != nil {
		return fmt.Errorf("what was put twice: %w", err)
	}
	defer a.Release()
	same, err := equal(a, rows)
	if err == nil && !same {
		err = errors.New("what was put twice came back as something else")
	}
	if err == nil {
		fmt.Fprintf(out, "kept:      %q, which was put twice, is there in full\n", safe)
	}
	return err
}

func free(ctx context.Context, cluster *flight.Cluster) error {
	return errors.Join(cluster.Free(ctx, picture), cluster.Free(ctx, grey))
}

// equal compares shapes and the bytes of dense arrays that the host can read.
func equal(a, b *usmarray.Array) (bool, error) {
	x, err := usmarray.Slice[float32](a)
	if err != nil {
		return false, err
	}
	y, err := usmarray.Slice[float32](b)
	if err != nil || len(x) != len(y) {
		return false, err
	}
	for i := range x {
		if x[i] != y[i] {
			return false, nil
		}
	}
	return true, nil
}

// ---- processes -----------------------------------------------------------------------

// processes are shards on this machine.
type processes struct {
	dir       string
	commands  []*exec.Cmd
	said      []*bytes.Buffer
	inputs    []io.Closer
	locations []string
}

func (p *processes) pid(i int) int { return p.commands[i].Process.Pid }

// start starts shards on unix sockets and waits until they listen. They end with stop,
// and with this process, whose end of their input closes then.
func start(ctx context.Context, program []string, n int) (_ *processes, err error) {
	if program == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = []string{self}
	}
	p := &processes{}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "usmbridge-shards-"); err != nil {
		return nil, err
	}
	outputs := make([]io.Reader, n)
	for i := range n {
		at := "grpc+unix://" + filepath.Join(p.dir, fmt.Sprint(i))
		c := exec.CommandContext(ctx, program[0], append(program[1:len(program):len(program)], "-shard", at, "-attached")...)
		said := &bytes.Buffer{}
		c.Stderr = said
		in, err := c.StdinPipe()
		if err != nil {
			return nil, err
		}
		if outputs[i], err = c.StdoutPipe(); err != nil {
			return nil, err
		}
		if err := c.Start(); err != nil {
			return nil, err
		}
		p.commands, p.said, p.inputs = append(p.commands, c), append(p.said, said), append(p.inputs, in)
	}
	for i, o := range outputs {
		line, err := bufio.NewReader(o).ReadString('\n')
		at, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
		if !ok {
			_ = p.commands[i].Wait() // then all that it said is there
			return nil, fmt.Errorf("shard %d did not start (%w): %s", i, err, p.said[i])
		}
		p.locations = append(p.locations, at)
	}
	return p, nil
}

func (p *processes) kill(i int) error {
	if err := p.commands[i].Process.Kill(); err != nil {
		return err
	}
	var killed *exec.ExitError
	if err := p.commands[i].Wait(); !errors.As(err, &killed) {
		return fmt.Errorf("the killed shard ended by itself: %w", err)
	}
	return nil
}

// stop ends those that there still are.
func (p *processes) stop() {
	for i, c := range p.commands {
		p.inputs[i].Close()
		if c.ProcessState == nil {
			_ = c.Wait() // ended because it was told to
		}
	}
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // sockets of ended processes
	}
}
