package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/region"
)

// config is the configuration from the flags.
type config struct {
	addr, grpc, admin string
	models            string
	limit             uint64
	workers, slots    int
	timeout, drain    time.Duration
	drainDelay        time.Duration
	loadTimeout       time.Duration // 0: no bound
	maxConnections    int           // of each address
	modelControl      bool
	shmPrefix         string
	hosts             string
	logFormat         string
	debug             bool
}

// minLimit is the smallest useful -limit: the pools take memory in segments of some MiB.
const minLimit = 16 << 20

// none is the address of an interface that is not served.
const none = "none"

// unixPrefix is the prefix of the address of a Unix socket, before its path.
const unixPrefix = "unix:"

// parse reads the flags. An empty value means the default, so that a Makefile or a unit file can
// pass an unset variable.
func parse(args []string, w io.Writer) (*config, error) {
	c := &config{}
	f := flag.NewFlagSet("usmserve", flag.ContinueOnError)
	f.SetOutput(w)
	f.StringVar(&c.addr, "addr", "", "`address` of the REST interface, host:port or unix:path (default 127.0.0.1:8000)")
	f.StringVar(&c.grpc, "grpc", "", "`address` of gRPC, host:port, unix:path or none (default 127.0.0.1:8001)")
	f.StringVar(&c.admin, "admin", "", "`address` of metrics, probes and profiles, host:port, unix:path or none (default 127.0.0.1:8002)")
	f.StringVar(&c.models, "models", "", "`directory` of model files, NAME.py each (default the built-in models)")
	f.Func("limit", "`bytes` of memory for tensors, such as 512Mi (default half of the memory that this process may use)", func(s string) (err error) {
		c.limit, err = parseBytes(s)
		return err
	})
	f.IntVar(&c.workers, "workers", 0, "number of `processes` that run models, each with its own Python; 0 runs them in this process")
	f.IntVar(&c.slots, "slots", 0, "number of `calls` of models at a time in this process, in addition to one of serial models (default 2)")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "maximum `time` of a request, of the arrival of a gRPC message, and of a call of a model")
	f.DurationVar(&c.drain, "drain", 30*time.Second, "maximum `time` for requests in flight after SIGTERM")
	f.DurationVar(&c.loadTimeout, "load-timeout", 10*time.Minute, "maximum `time` to load a model, 0 for no bound")
	f.BoolVar(&c.modelControl, "model-control", false, "let clients load and unload models, by the protocol's repository extension")
	f.DurationVar(&c.drainDelay, "drain-delay", 0, "`time` after SIGTERM in which requests are served but the server is not ready, so that load balancers notice")
	f.IntVar(&c.maxConnections, "max-connections", 1024, "maximum `number` of open connections of each address; further clients wait")
	f.StringVar(&c.shmPrefix, "shm-prefix", "", "`prefix` of the keys of shared memory that clients may register: over TCP, memory of the user of this server, and none without a prefix; over Unix sockets, memory of the client's own user")
	f.StringVar(&c.hosts, "hosts", "", "`names` of this server, separated by commas, for the Host of GET requests over TCP and of web pages; numeric addresses and localhost are always accepted")
	f.StringVar(&c.logFormat, "log", "text", "`format` of the log on standard error, text or json")
	f.BoolVar(&c.debug, "debug", false, "also log errors of single connections, such as slow or invalid headers")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q; -h lists the flags", f.Arg(0))
	}
	return c, c.complete()
}

// complete sets defaults and checks the configuration.
func (c *config) complete() (err error) {
	c.addr = cmp.Or(c.addr, "127.0.0.1:8000")
	c.grpc = cmp.Or(c.grpc, "127.0.0.1:8001")
	c.admin = cmp.Or(c.admin, "127.0.0.1:8002")
	if c.shmPrefix != "" {
		if c.shmPrefix, err = region.CheckPrefix(c.shmPrefix); err != nil {
			return fmt.Errorf("-shm-prefix: %w", err)
		}
	}
	switch {
	case c.workers < 0 || c.slots < 0:
		return errors.New("-workers and -slots must not be negative")
	case c.maxConnections < 1:
		return errors.New("-max-connections must be at least 1")
	case c.limit != 0 && c.limit < minLimit:
		return fmt.Errorf("-limit %d: want at least %d bytes (%d MiB)", c.limit, uint64(minLimit), minLimit>>20)
	case c.timeout <= 0 || c.drain <= 0 || c.drainDelay < 0 || c.loadTimeout < 0:
		return errors.New("-timeout and -drain must be more than 0, and -drain-delay and -load-timeout must not be negative")
	case c.logFormat != "text" && c.logFormat != "json":
		return fmt.Errorf("-log %s: text or json", c.logFormat)
	case c.addr == none:
		return errors.New("-addr none: the REST interface is always served")
	}
	return nil
}

// parseBytes reads a number of bytes, with a suffix Ki, Mi, Gi or Ti or without; "" is 0.
func parseBytes(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	digits, shift := s, 0
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			digits, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || n<<shift>>shift != n || n<<shift > 1<<62 {
		return 0, fmt.Errorf("invalid number of bytes %q: want one like 1073741824 or 512Mi", s)
	}
	return n << shift, nil
}

// sharesMemory reports whether any client can register shared memory: over TCP with a prefix, and
// over a Unix socket without one too.
func (c *config) sharesMemory() bool {
	return c.shmPrefix != "" || strings.HasPrefix(c.addr, unixPrefix) || strings.HasPrefix(c.grpc, unixPrefix)
}

// logger returns the log that -log and -debug describe.
func (c *config) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelInfo}
	if c.debug {
		o.Level = slog.LevelDebug
	}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// listen opens an address. A socket file on which no process listens is replaced.
func listen(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		return net.Listen("tcp", address)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("unix:%s: another process listens there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}

// shown returns the address of a listener in the form of the flags.
func shown(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return "unix:" + l.Addr().String()
	}
	return l.Addr().String()
}
