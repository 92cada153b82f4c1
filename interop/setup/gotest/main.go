// Command gotest runs `go test` with the arguments it is given and shows what
// matters: a line for each package, the output of what failed, and at the end
// every skipped test with its reason. Its last line is the count:
//
//	1204 passed, 0 failed, 7 skipped
//
// Tests with subtests are counted by these. The exit status is 0 only when
// tests ran and none failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	// An interrupt reaches go test too, which ends its tests; the summary of
	// what had run until then is still worth printing. The signals are caught
	// rather than ignored, because children would inherit that.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	code, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	os.Exit(code)
}

// run starts go test, reads its events and prints the summary.
func run(out io.Writer, args []string) (int, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("starting go test: %w", err)
	}
	t := newTally(out)
	readErr := t.read(pipe)
	err = cmd.Wait()
	t.summary()
	switch {
	case readErr != nil:
		return 1, readErr
	case t.failed > 0 || err != nil:
		return 1, nil
	case t.passed == 0:
		return 1, fmt.Errorf("no test ran")
	}
	return 0, nil
}

// read takes the events one a line; lines that are none (of the build, of a
// program that wrote past the test framework) are passed on.
func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				t.add(e)
			} else {
				fmt.Fprintf(t.out, "%s", line)
			}
		}
		if err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading go test's events: %w", err)
		}
	}
}
