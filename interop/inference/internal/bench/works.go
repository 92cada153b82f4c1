package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func cutLast(address string) (host, port string, ok bool) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return address, "", false
	}
	return address[:i], address[i+1:], true
}

// sobel compares the servers for several sizes.
func (b *bench) sobel() (err error) {
	ours, rest, grpc, err := b.ours()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	peer, peerAt, err := b.aiohttp()
	if err != nil {
		return err
	}
	if peer != nil {
		defer func() { _ = peer.stop() }()
	}
	ml, mlAt, err := b.startMLServer()
	if err != nil {
		fmt.Println("not comparing with MLServer:", err)
	}
	if ml != nil {
		defer func() { _ = ml.stop() }()
	}
	for _, size := range []struct {
		name string
		side int
	}{{"1 KiB", 16}, {"64 KiB", 128}, {"1 MiB", 512}} {
		s := spec{Model: "sobel", Height: size.side, Width: size.side, Clients: 32, Warm: 500 * time.Millisecond, Duration: b.seconds}
		to := func(protocol, address string) spec {
			c := s
			c.Protocol, c.Address = protocol, address
			return c
		}
		ways := []*way{{name: "REST", server: ours, spec: to("v2", rest)}, {name: "gRPC", server: ours, spec: to("grpc", grpc)}}
		if peer != nil {
			ways = append(ways, &way{name: "aiohttp", server: peer, spec: to("bare", peerAt)})
		}
		if ml != nil {
			ways = append(ways, &way{name: "MLServer, gRPC", server: ml, spec: to("grpc", mlAt)})
		}
		ways = inTurn(ways, b.rounds)
		work := "sobel, " + size.name + ", 32 clients"
		b.report.table(work, ways)
		b.sobelBounds(work, ways)
	}
	return nil
}

func (b *bench) sobelBounds(work string, ways []*way) {
	named := map[string]*way{}
	for _, w := range ways {
		named[w.name] = w
	}
	for _, name := range []string{"REST", "gRPC"} {
		w := named[name]
		if w == nil {
			continue
		}
		if p := named["aiohttp"]; p != nil {
			b.report.bound(work, name+" to aiohttp, requests a second", w.runs.rate()/p.runs.rate(), ">=", 1.5)
			b.report.bound(work, name+" to aiohttp, CPU a request", w.runs.cpu()/p.runs.cpu(), "<=", 0.8)
			b.report.bound(work, name+" to aiohttp, 99th percentile", w.runs.p99()/p.runs.p99(), "<=", 1)
		}
		if p := named["MLServer, gRPC"]; p != nil {
			b.report.bound(work, name+" to MLServer, requests a second", w.runs.rate()/p.runs.rate(), ">=", 1)
		}
	}
}

// startMLServer starts MLServer. It returns nil if MLServer is not installed.
func (b *bench) startMLServer() (*server, string, error) {
	if b.mlserver == "" {
		return nil, "", errors.New("it is not installed (make bench-service fetches it)")
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "bench-mlserver")
	if err != nil {
		return nil, "", err
	}
	number := func(i int) int { _, p, _ := cutLast(ports[i]); n, _ := strconv.Atoi(p); return n }
	for name, settings := range map[string]map[string]any{
		"settings.json": {"host": "127.0.0.1", "http_port": number(0), "grpc_port": number(1), "metrics_port": number(2), "debug": false,
			"parallel_workers": 0, "grpc_max_message_length": 1 << 28},
		"model-settings.json": {"name": "sobel", "implementation": "mlserver_sobel.Sobel"},
	} {
		text, err := json.Marshal(settings)
		if err != nil {
			return nil, "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, "", err
		}
	}
	peers, err := filepath.Abs(filepath.Join(b.dir, "internal/bench/peers"))
	if err != nil {
		return nil, "", err
	}
	mlserver, err := filepath.Abs(b.mlserver)
	if err != nil {
		return nil, "", err
	}
	shell := `echo started; exec "$@" 1>&2` // MLServer writes nothing to its standard output
	s, err := start("MLServer", "started", []string{"PYTHONPATH=" + mlserver + ":" + peers},
		"sh", "-c", shell, "sh", b.python, "-c", "from mlserver.cli import main; main()", "start", dir)
	if err != nil {
		return nil, "", err
	}
	if err := wait(ports[1]); err != nil {
		_ = s.stop()
		return nil, "", fmt.Errorf("%w: %s", err, tail(s.said.String()))
	}
	time.Sleep(2 * time.Second) // MLServer loads the model after it listens
	return s, ports[1], nil
}

// region compares shared memory with request bodies, for one client and a model with little computation.
func (b *bench) region() (err error) {
	ours, rest, _, err := b.ours("-limit", "1Gi")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	const large, small = 64 << 20 / 4, 4 << 10 / 4
	s := spec{Protocol: "v2", Address: rest, Model: "touch", Clients: 1, Warm: 500 * time.Millisecond, Duration: b.seconds}
	var ways []*way
	for _, c := range []struct {
		name   string
		model  string
		n      int
		region bool
	}{
		{"body, 64 MiB", "touch", large, false}, {"region, 64 MiB", "touch", large, true},
		{"body, 4 KiB", "touch", small, false}, {"region, 4 KiB", "touch", small, true},
		{"identity, body, 64 MiB", "identity", large, false}, {"identity, region, 64 MiB", "identity", large, true},
	} {
		one := s
		one.Model, one.Height, one.Region = c.model, c.n, c.region
		ways = append(ways, &way{name: c.name, server: ours, spec: one})
	}
	ways = inTurn(ways, b.rounds)
	const work = "system shared memory against the binary body, 1 client"
	b.report.table(work, ways)
	if len(ways) == 6 {
		b.report.bound(work, "64 MiB: body to region, time", ways[0].runs.p50()/ways[1].runs.p50(), ">=", 10)
		b.report.bound(work, "region: 64 MiB to 4 KiB, time", ways[1].runs.p50()/ways[3].runs.p50(), "<=", 1.3)
	}
	return nil
}

// busy compares workers with plain processes, for a function in pure Python that takes about 50 ms.
func (b *bench) busy() error {
	plain := map[int]float64{}
	service := map[int]rounds{}
	var ways []*way
	for _, n := range []int{1, 2} {
		s, rest, _, err := b.ours("-workers", strconv.Itoa(n))
		if err != nil {
			return err
		}
		ways = append(ways, &way{name: fmt.Sprintf("%d workers", n), server: s, spec: spec{Protocol: "v2", Address: rest, Model: "busy",
			Height: 4, Clients: 8, Warm: time.Second, Duration: 2 * b.seconds}})
	}
	defer func() {
		for _, w := range ways {
			_ = w.server.stop()
		}
	}()
	for range b.rounds {
		for i, w := range ways {
			m, err := w.spec.against(w.server)
			if err != nil {
				return err
			}
			w.runs = append(w.runs, m)
			service[i+1] = w.runs
			rate, err := b.plain(i+1, 2*b.seconds)
			if err != nil {
				return err
			}
			plain[i+1] += rate / float64(b.rounds)
		}
	}
	const work = "pure Python of 50 ms, 8 clients"
	b.report.table(work, ways)
	gain, theirs := service[2].rate()/service[1].rate(), plain[2]/plain[1]
	fmt.Printf("  plain processes: one %.1f calls a second, two %.1f, which is %.2f times as many\n", plain[1], plain[2], theirs)
	b.report.bound(work, "gain of a second worker to that of a second process", gain/theirs, ">=", 0.9)
	return nil
}

// plain runs n processes concurrently and returns the sum of their calls per second.
func (b *bench) plain(n int, d time.Duration) (sum float64, err error) {
	type process struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Scanner
	}
	var all []process
	for range n {
		cmd := exec.Command(b.python, filepath.Join(b.dir, "internal/bench/peers/plain.py"), strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		all = append(all, process{cmd, in, bufio.NewScanner(out)})
	}
	for _, p := range all {
		if !p.out.Scan() {
			err = errors.New("a plain process did not begin")
		}
	}
	for _, p := range all {
		_, _ = p.in.Write([]byte("\n"))
	}
	for _, p := range all {
		if p.out.Scan() {
			rate, _ := strconv.ParseFloat(p.out.Text(), 64)
			sum += rate
		}
		err = errors.Join(err, p.cmd.Wait())
	}
	return sum, err
}

// cut closes connections in the middle of requests, by one client in three, with a limit that requests reach.
func (b *bench) cut() (err error) {
	ours, rest, grpc, err := b.ours("-limit", "32Mi")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	half := b.soak / 2
	s := spec{Protocol: "v2", Address: rest, Model: "identity", Height: 1 << 18, Clients: 24, Warm: time.Second, Duration: half, Cut: 3, Retry: true, Verify: true}
	other := s
	other.Protocol, other.Address, other.Clients = "grpc", grpc, 12
	var at []int64
	ways := []*way{{name: "REST", server: ours, spec: s}, {name: "gRPC", server: ours, spec: other}}
	for range 2 {
		done := make(chan error, 1)
		go func() {
			m, err := ways[1].spec.against(ours)
			if err == nil {
				ways[1].runs = append(ways[1].runs, m)
			}
			done <- err
		}()
		m, err := ways[0].spec.against(ours)
		if err = errors.Join(err, <-done); err != nil {
			return err
		}
		ways[0].runs = append(ways[0].runs, m)
		time.Sleep(time.Second)
		at = append(at, ours.usage().resident)
	}
	work := fmt.Sprintf("one client in three cut off, %v, 1 MiB each, limit 32 MiB", b.soak)
	b.report.table(work, ways)
	wrong, lost, failed, refused, cut := 0, 0, 0, 0, 0
	for _, w := range ways {
		for _, m := range w.runs {
			wrong, lost, failed, refused, cut = wrong+m.Wrong, lost+m.Lost, failed+m.Failed, refused+m.Refused, cut+m.Cut
		}
	}
	fmt.Printf("  %d were cut off, %d were refused and retried\n", cut, refused)
	b.report.bound(work, "wrong answers", float64(wrong), "<=", 0)
	b.report.bound(work, "lost requests", float64(lost+failed), "<=", 0)
	b.report.bound(work, "resident memory at the end, to that after the first half", float64(at[1])/float64(at[0]), "<=", 1.1)
	waits, err := metric(ours.admin, `usmbridge_memory_wait_seconds_count`)
	if err != nil {
		return err
	}
	fmt.Printf("  %.0f times a request waited for memory\n", waits)
	left, err := metric(ours.admin, "inference_requests_in_flight")
	if err != nil {
		return err
	}
	b.report.bound(work, "requests in flight afterwards", left, "<=", 0)
	return nil
}

// metric returns the sum of the series of a name.
func metric(admin, name string) (sum float64, err error) {
	answer, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	lines, found := bufio.NewScanner(answer.Body), false
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+n, true
	}
	if !found {
		return 0, fmt.Errorf("/metrics has no series %s", name)
	}
	return sum, lines.Err()
}
