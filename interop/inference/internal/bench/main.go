package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// bench is one run.
type bench struct {
	service  string // the program
	dir      string // of this package's sources
	models   string // a directory of the built-in models and those of the bench
	python   string // the interpreter with Numba
	peers    string // a directory with aiohttp, "" for none
	mlserver string // one with MLServer, "" for none
	only     *regexp.Regexp
	rounds   int
	seconds  time.Duration
	soak     time.Duration
	report   report
}

func main() {
	load := flag.Bool("load", false, "make the load that standard input describes (for this program itself)")
	b := &bench{}
	flag.StringVar(&b.service, "service", "bin/usmserve", "the service's `program`")
	flag.StringVar(&b.dir, "dir", "interop/inference", "the service's source `directory`")
	flag.StringVar(&b.peers, "aiohttp", "bin/tritonclient", "`directory` that has aiohttp")
	flag.StringVar(&b.mlserver, "mlserver", "bin/mlserver", "`directory` that has MLServer")
	only := flag.String("only", ".", "`regexp` of works: sobel, region, busy, cut")
	flag.IntVar(&b.rounds, "rounds", 3, "`times` that each way is run")
	flag.DurationVar(&b.seconds, "time", 2*time.Second, "`time` of a run")
	flag.DurationVar(&b.soak, "soak", time.Minute, "`time` of the work in which clients are cut off")
	to := flag.String("json", "", "`file` for the results")
	flag.Parse()
	if *load {
		exit(generate(os.Stdin, os.Stdout))
		return
	}
	var err error
	if b.only, err = regexp.Compile(*only); err != nil {
		exit(err)
	}
	exit(errors.Join(b.run(), b.report.write(*to)))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run() error {
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		b.python = filepath.Join(venv, "bin", "python")
	} else {
		b.python = "python3"
	}
	for _, dir := range []*string{&b.peers, &b.mlserver} {
		if _, err := os.Stat(*dir); err != nil {
			*dir = ""
		}
	}
	var err error
	if b.models, err = os.MkdirTemp("", "bench-models"); err != nil {
		return err
	}
	defer os.RemoveAll(b.models)
	for _, from := range []string{"models", "internal/bench/models"} {
		files, err := filepath.Glob(filepath.Join(b.dir, from, "*.py"))
		if err != nil {
			return err
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(b.models, filepath.Base(path)), text, 0o600); err != nil {
				return err
			}
		}
	}
	for _, work := range []struct {
		name string
		run  func() error
	}{
		{"sobel", b.sobel}, {"region", b.region}, {"busy", b.busy}, {"cut", b.cut},
	} {
		if !b.only.MatchString(work.name) {
			continue
		}
		if err := work.run(); err != nil {
			return fmt.Errorf("%s: %w", work.name, err)
		}
	}
	return nil
}

// ours starts the service; rest and grpc are its addresses.
func (b *bench) ours(flags ...string) (s *server, rest, grpc string, err error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, "", "", err
	}
	argv := append([]string{b.service, "-addr", ports[0], "-grpc", ports[1], "-admin", ports[2], "-models", b.models, "-shm-prefix", sharedPrefix}, flags...)
	if s, err = start("service", "listening on", nil, argv...); err == nil {
		s.admin = ports[2]
	}
	return s, ports[0], ports[1], err
}

// aiohttp starts the peer, nil where it is not installed.
func (b *bench) aiohttp() (*server, string, error) {
	if b.peers == "" {
		fmt.Println("not comparing with aiohttp: it is not installed; make bench-service installs it")
		return nil, "", nil
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, "", err
	}
	_, port, _ := cutLast(ports[0])
	s, err := start("aiohttp", "listening", []string{"PYTHONPATH=" + b.peers}, b.python, filepath.Join(b.dir, "internal/bench/peers/aiohttp_sobel.py"), port)
	return s, ports[0], err
}
