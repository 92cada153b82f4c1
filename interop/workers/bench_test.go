//go:build cgo && linux

package workers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/internal/testenv/testpython"
	"github.com/usmbridge/usmbridge/interop/executor"
	"github.com/usmbridge/usmbridge/interop/pymodule"
	"github.com/usmbridge/usmbridge/interop/python"
	"github.com/usmbridge/usmbridge/interop/workers"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// work is a Python module without extensions: work(n) counts to n.
const work = `
import time
def work(n):
    i = 0
    while i < n: i += 1
    return i
def steps():                    # as many as take 50 ms alone
    work(100000)
    n, best = 1000000, 1e9
    for _ in range(3):
        t = time.perf_counter()
        work(n)
        best = min(best, time.perf_counter() - t)
    return int(n * 0.05 / best)
`

// plain is a Python process without this module, which runs work on request.
type plain struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

func startPlain(b *testing.B, env *python.Environment) *plain {
	b.Helper()
	cmd := exec.Command(env.Executable, "-c", work+`
import sys
for line in sys.stdin:
    work(int(line))
    print("done", flush=True)
`)
	cmd.Stderr = os.Stderr
	in := testenv.Must(cmd.StdinPipe())(b)
	out := testenv.Must(cmd.StdoutPipe())(b)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &plain{in, bufio.NewScanner(out)}
}

func (p *plain) work(n int) error {
	if _, err := fmt.Fprintln(p.in, n); err != nil {
		return err
	}
	if !p.out.Scan() {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// BenchmarkBusy runs pure Python code of 50 ms in plain Python processes, in workers, and in the embedded interpreter.
// A gain is the ratio of the calls per second of two processes (workers, slots) to those of one. The goal is that the
// gain of workers is at least 0.9 times that of plain processes, which varies by 10 % between runs on two cores.
func BenchmarkBusy(b *testing.B) {
	env := testpython.Need(b, "numpy")
	module := []workers.Module{{Name: "work", Source: work}}
	p := open(b, workers.Config{Workers: 2, Least: 2, Modules: module})
	e := embedded(b)
	v := testenv.Must(p.Call(b.Context(), "work:steps"))(b)
	n := int(v.(int64))
	processes := []*plain{startPlain(b, env), startPlain(b, env)}
	sides := []struct {
		name string
		call func(int) error
	}{
		{"plain", func(i int) error { return processes[i].work(n) }},
		{"workers", func(int) error { _, err := p.Call(b.Context(), "work:work", n); return err }},
		{"embedded", func(int) error { _, err := e.Call(b.Context(), "work:work", n); return err }},
	}
	gains := make([][]float64, len(sides))
	const rounds = 7
	for b.Loop() {
		for range rounds {
			for i, s := range sides {
				one, two := rate(b, s.call, 1), rate(b, s.call, 2)
				gains[i] = append(gains[i], two/one)
			}
		}
	}
	median := func(all []float64) float64 {
		slices.Sort(all)
		return all[len(all)/2]
	}
	for i, s := range sides {
		b.ReportMetric(median(gains[i]), s.name+"-gain")
	}
	b.ReportMetric(median(gains[1])/median(gains[0]), "workers/plain")
}

// rate returns the calls per second that the given number of callers make.
func rate(b *testing.B, call func(int) error, callers int) float64 {
	const each = 4
	var group sync.WaitGroup
	began := time.Now()
	for i := range callers {
		group.Go(func() {
			for range each {
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(each*callers) / time.Since(began).Seconds()
}

var interpreter struct {
	once sync.Once
	py   *python.Interpreter
	err  error
}

// embedded returns an executor with two slots on the interpreter of this process.
func embedded(b testing.TB) *executor.Executor {
	b.Helper()
	env := testpython.Need(b, "numpy") // before once.Do, because a skip inside it would leave it done
	interpreter.once.Do(func() {
		if interpreter.err = pymodule.Register(); interpreter.err != nil {
			return
		}
		if interpreter.py, interpreter.err = python.Start(python.WithEnvironment(env)); interpreter.err != nil {
			return
		}
		for name, source := range map[string]string{"work": work, "models": models} {
			o, err := interpreter.py.Module(name, source)
			if err != nil {
				interpreter.err = err
				return
			}
			o.Release()
		}
	})
	require.NoError(b, interpreter.err)
	e := testenv.Must(executor.New(interpreter.py, executor.Config{Slots: 2}))(b)
	b.Cleanup(func() { require.NoError(b, e.Close(context.Background())) })
	return e
}

// BenchmarkSmallCall compares a call of add(1) in a worker with a round trip of 64 bytes between two processes on a
// Unix socket, with the same call in the embedded interpreter, and with a worker's call that has an array of 1 MiB.
// They run in turns. The metrics are medians.
func BenchmarkSmallCall(b *testing.B) {
	p := open(b, workers.Config{})
	e := embedded(b)
	x := memory(b, segment.PeersWrite).floats(make([]float32, 1<<18)...)
	trip := roundTrip(b)
	call := func(r executor.Runner, function string, args ...any) func() {
		return func() {
			if _, err := r.Call(context.Background(), function, args...); err != nil {
				b.Fatal(err)
			}
		}
	}
	sides := []struct {
		name string
		do   func()
	}{
		{"socket", trip}, {"worker", call(p, "models:add", 1)}, {"embedded", call(e, "models:add", 1)},
		{"worker-array", call(p, "models:nothing", x)}, {"embedded-array", call(e, "models:nothing", x)},
	}
	const batch = 100
	took := make([][]float64, len(sides))
	for b.Loop() {
		for i, s := range sides {
			at := time.Now()
			for range batch {
				s.do()
			}
			took[i] = append(took[i], float64(time.Since(at).Nanoseconds())/batch/1000)
		}
	}
	for i, s := range sides {
		slices.Sort(took[i])
		b.ReportMetric(took[i][len(took[i])/2], s.name+"-us")
	}
}

// roundTrip returns a function that sends 64 bytes to another process and reads them back.
func roundTrip(b *testing.B) func() {
	b.Helper()
	l := testenv.Opened(net.Listen("unix", fmt.Sprintf("@usmbridge-workers-bench-%d", os.Getpid())))(b)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=echo", addressEnv+"="+l.Addr().String())
	cmd.Stderr = os.Stderr
	require.NoError(b, cmd.Start())
	c := testenv.Must(l.Accept())(b)
	b.Cleanup(func() {
		_ = c.Close()
		_ = cmd.Wait()
	})
	message := make([]byte, 64)
	return func() {
		if _, err := c.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, message); err != nil {
			b.Fatal(err)
		}
	}
}
