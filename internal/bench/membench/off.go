//go:build cgo && linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/usmbridge/usmbridge/memmgr"
)

// off measures the cost of the checks of USMBRIDGE_DEBUG while they are off. It builds this program twice, unchanged
// and without the expressions that test whether a check is on, and both run the work "one" in turns.
func (b *bench) off() {
	if err := b.tryOff(); err != nil {
		fmt.Fprintln(os.Stderr, "membench: off:", err)
	}
}

// checks are the expressions of package memmgr that test for a check, and what replaces each of them.
var checks = []string{
	"stacks.Depth.Load() != 0", "(&stacks.Depth == nil)", "debug.Stacks", "false", "debug.Poison", "false",
	"|| p.watched", "|| p.trace != nil", "p.watched ||", "p.trace != nil ||",
	"if !p.poisons", "if true",
}

func (b *bench) tryOff() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/usmbridge/usmbridge").Output()
	if err != nil {
		return fmt.Errorf("go list, in the module's directory: %w", err)
	}
	root := strings.TrimSpace(string(out))
	dir, err := os.MkdirTemp("", "membench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := withoutChecks(root, dir)
	if err != nil {
		return err
	}
	var both [2]string
	for i, args := range [][]string{nil, {"-overlay", overlay}} {
		both[i] = filepath.Join(dir, fmt.Sprint("membench", i))
		build := exec.Command("go", append(append([]string{"build", "-o", both[i]}, args...), "./internal/bench/membench")...)
		build.Dir = root
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, text)
		}
	}
	best := [2]float64{math.Inf(1), math.Inf(1)}
	for range 10 {
		for i, program := range both {
			ns, err := b.oneIn(program, filepath.Join(dir, "one.json"))
			if err != nil {
				return err
			}
			best[i] = min(best[i], ns)
		}
	}
	b.add(result{
		Work: "debug off: allocate and free 4 KiB", Ours: best[0], Peer: best[1], Name: "a build without the checks",
		Unit: "ns", Ratio: best[0] / best[1], Bound: 1.03,
	})
	return nil
}

// oneIn returns the result of the work "one" in another build of this program, which writes it to a file.
func (b *bench) oneIn(program, file string) (ns float64, err error) {
	cmd := exec.Command(program, "-work", "^one$", "-rounds", fmt.Sprint(b.rounds), "-json", file)
	cmd.Env = append(os.Environ(), memmgr.DebugEnv+"=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var results []result
	if err := json.Unmarshal(text, &results); err != nil {
		return 0, err
	}
	if len(results) != 1 {
		return 0, errors.New("the work \"one\" has no result")
	}
	return results[0].Ours, nil
}

// withoutChecks writes copies of the files without these expressions, and an overlay for go build.
func withoutChecks(root, dir string) (string, error) {
	replace, all := map[string]string{}, ""
	files, err := filepath.Glob(filepath.Join(root, "memmgr", "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // Of the module.
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		all += string(text)
		replace[file] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(replace[file], []byte(strings.NewReplacer(checks...).Replace(string(text))), 0o600); err != nil {
			return "", err
		}
	}
	for i := 0; i < len(checks); i += 2 {
		if !strings.Contains(all, checks[i]) {
			return "", fmt.Errorf("package memmgr has no %q; update the list in membench/off.go", checks[i])
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}
