package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"syscall"
	"time"
)

const (
	dir   = "interop/inference/internal" // of the sources
	peers = "bin/tritonclient"           // has aiohttp
)

// bench is one run.
type bench struct {
	service string // the program
	models  string // a directory with the models of the bench
	python  string // the interpreter with Numba
	rounds  int
	seconds time.Duration
}

func main() {
	b := &bench{python: "python3"}
	flag.StringVar(&b.service, "service", "bin/usmserve", "the service's `program`")
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
	syscall.Umask(0o077) // the service refuses files that others can write
	for _, from := range []string{"models/builtin", "bench/models"} {
		if err := os.CopyFS(b.models, os.DirFS(filepath.Join(dir, from))); err != nil {
			return err
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

// ours starts the service.
func (b *bench) ours(flags ...string) (*server, error) {
	const port = "127.0.0.1:0"
	return start("service", nil, append([]string{b.service, "-addr", port, "-grpc", port, "-admin", "none", "-models", b.models, "-shm-prefix", sharedPrefix}, flags...)...)
}

// peer starts a program of peers that needs a package; nil if that is not installed.
func (b *bench) peer(pkg, program string) (*server, error) {
	if _, err := os.Stat(filepath.Join(peers, pkg)); err != nil {
		fmt.Printf("not comparing with %s: it is not installed; make bench-service installs it\n", pkg)
		return nil, nil
	}
	return start(pkg, []string{"PYTHONPATH=" + peers}, b.python, filepath.Join(dir, "bench/peers", program))
}
