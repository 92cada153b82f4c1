package main

import (
	"bufio"
	_ "embed" // for the Python programs
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/usmbridge/usmbridge/interop/flight"
)

//go:embed server.py
var serverPy string

//go:embed client.py
var clientPy string

// pyarrow compares the server of package flight with one in Python, both with pyarrow's client.
func pyarrow(dir string, ours flight.Location, size, rounds int) error {
	exe := "python3"
	if env := os.Getenv("VIRTUAL_ENV"); env != "" {
		exe = filepath.Join(env, "bin", "python")
	}
	if out, err := exec.Command(exe, "-c", "import pyarrow.flight").CombinedOutput(); err != nil {
		last := strings.TrimSpace(string(out))
		fmt.Printf("not comparing with pyarrow: %s does not have it (%v: %s)\n", exe, err, last[strings.LastIndex(last, "\n")+1:])
		return nil
	}
	theirs := flight.Location{Scheme: "grpc+unix", Address: filepath.Join(dir, "python")}
	server := exec.Command(exe, "-c", serverPy, theirs.String())
	server.Stderr = os.Stderr
	stdin, err := server.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return err
	}
	defer func() { stdin.Close(); _ = server.Wait() }()
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return fmt.Errorf("the server in Python: %w", err)
	}
	client := exec.Command(exe, "-c", clientPy, ours.String(), theirs.String(), strconv.Itoa(size), strconv.Itoa(rounds))
	client.Stderr = os.Stderr
	out, err := client.Output()
	if err != nil {
		return fmt.Errorf("pyarrow's client: %w", err)
	}
	var t map[string]float64
	if err := json.Unmarshal(out, &t); err != nil {
		return err
	}
	fmt.Printf("%d MiB, pyarrow's client, medians of %d\n\n", size>>20, rounds)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "way\tflight\tserver in Python\ttheirs/ours")
	for _, op := range []string{"put", "get"} {
		fmt.Fprintf(w, "%s\t%.1f ms\t%.1f ms\t%.2f\n", op, 1e3*t[op+" 0"], 1e3*t[op+" 1"], t[op+" 1"]/t[op+" 0"])
	}
	fmt.Fprintln(w)
	bound(w, "pyarrow get, speed of the server's in Python", t["get 1"]/t["get 0"], ">=", 1.3)
	bound(w, "pyarrow put, speed of the server's in Python", t["put 1"]/t["put 0"], ">=", 1)
	return w.Flush()
}
