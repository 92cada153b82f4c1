package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"time"
)

// bench is one run.
type bench struct {
	service string // the program
	dir     string // of the sources of the module
	models  string // a directory with the models of the bench
	python  string // the interpreter with Numba
	peers   string // a directory with aiohttp
	rounds  int
	seconds time.Duration
}

func main() {
	b := &bench{python: "python3"}
	flag.StringVar(&b.service, "service", "bin/usmserve", "the service's `program`")
	flag.StringVar(&b.dir, "dir", "interop/inference", "the service's source `directory`")
	flag.StringVar(&b.peers, "aiohttp", "bin/tritonclient", "`directory` that has aiohttp")
	only := flag.String("only", ".", "`regexp` of works: sobel, region, busy")
	flag.IntVar(&b.rounds, "rounds", 3, "`times` that each way is run")
	flag.DurationVar(&b.seconds, "time", 2*time.Second, "`time` of a run")
	flag.Parse()
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		b.python = filepath.Join(venv, "bin", "python")
	}
	debug.SetGCPercent(800) // the load shares the processors with the servers
	if err := b.run(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if b.models, err = os.MkdirTemp("", "bench-models"); err != nil {
		return err
	}
	defer os.RemoveAll(b.models)
	for _, from := range []string{"builtin", "bench/models"} {
		files, err := filepath.Glob(filepath.Join(b.dir, "internal", from, "*.py"))
		if err != nil {
			return err
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(filepath.Join(b.models, filepath.Base(path)), text, 0o600)
			}
			if err != nil {
				return err
			}
		}
	}
	for _, work := range []struct {
		name string
		run  func() error
	}{{"sobel", b.sobel}, {"region", b.region}, {"busy", b.busy}} {
		if wanted.MatchString(work.name) {
			if err := work.run(); err != nil {
				return fmt.Errorf("%s: %w", work.name, err)
			}
		}
	}
	return nil
}

// ours starts the service; rest and grpc are its addresses.
func (b *bench) ours(flags ...string) (s *server, rest, grpc string, err error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, "", "", err
	}
	argv := append([]string{b.service, "-addr", ports[0], "-grpc", ports[1], "-admin", "none", "-models", b.models, "-shm-prefix", sharedPrefix}, flags...)
	s, err = start("service", "listening on", nil, argv...)
	return s, ports[0], ports[1], err
}

// aiohttp starts the peer; nil if it is not installed.
func (b *bench) aiohttp() (*server, string, error) {
	if _, err := os.Stat(filepath.Join(b.peers, "aiohttp")); err != nil {
		fmt.Println("not comparing with aiohttp: it is not installed; make bench-service installs it")
		return nil, "", nil
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(ports[0])
	s, err := start("aiohttp", "listening", []string{"PYTHONPATH=" + b.peers}, b.python, filepath.Join(b.dir, "internal/bench/peers/aiohttp_sobel.py"), port)
	return s, ports[0], err
}
