// Command setup makes the Python environment that the main job and the tests
// use: a virtual environment with packages pinned by version and hash.
//
//	go run ./internal/tools/setup [-dir .venv] run|test
//
// "run" installs what the main job needs (dpctl, the OpenCL CPU runtime,
// Numba), "test" the peers that the interop tests talk to as well. When the
// environment stands already the program checks that in a few milliseconds
// and says nothing.
//
// The Python behind it is the first that can be embedded (3.11 to 3.14, with
// libpython, not free-threaded) and can make environments (venv, ensurepip):
// USMBRIDGE_PYTHON, the active virtual environment, python3 and python3.N on
// PATH. When there is none, CPython 3.14 is taken from a Go module
// (interop/embedpython) into the environment's directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	dir := flag.String("dir", ".venv", "the environment's `directory`")
	root := flag.String("root", ".", "the `directory` of usmbridge's go.mod")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: setup [-dir .venv] [-root .] run|test")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := setUp(ctx, *root, *dir, flag.Arg(0)); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted; the next run takes up from here")
		}
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}

// setUp brings the environment in dir to the named set of packages.
func setUp(ctx context.Context, root, dir, set string) error {
	want, err := requirements(set)
	if err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return fmt.Errorf("SYCL and an embedded Python work on Linux only, and this is %s; "+
			"`go run ./examples/quickstart` shows what works everywhere", runtime.GOOS)
	}
	v, err := openVenv(dir)
	if err != nil {
		return err
	}
	if v.current(ctx, want) {
		return nil
	}
	if err := v.ensure(ctx, root); err != nil {
		return err
	}
	return v.install(ctx, want)
}

// say prints one line of progress.
func say(format string, args ...any) {
	fmt.Printf("setup: "+format+"\n", args...)
}
