package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// server is a process that serves, with those that it starts.
type server struct {
	name  string
	cmd   *exec.Cmd
	at    map[string]string // its addresses, by the words before " on " in its lines
	ended chan struct{}
}

// start runs a program and waits until a line of its standard output is "listening on ADDRESS".
func start(name string, env []string, argv ...string) (*server, error) {
	s := &server{name: name, at: map[string]string{}, ended: make(chan struct{})}
	s.cmd = exec.Command(argv[0], argv[1:]...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said bytes.Buffer // read after the end
	s.cmd.Stderr = &said
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	defer time.AfterFunc(3*time.Minute, func() { _ = s.cmd.Process.Kill() }).Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		what, address, _ := strings.Cut(lines.Text(), " on ")
		if s.at[what] = address; what == "listening" {
			go func() {
				_, _ = io.Copy(io.Discard, out)
				_ = s.cmd.Wait()
				close(s.ended)
			}()
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s is not ready: %w: %s", name, s.cmd.Wait(), &said)
}

// stop ends it as a service manager would, and waits.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-s.ended
		return fmt.Errorf("%s did not end within 20 s of SIGTERM", s.name)
	}
	return nil
}

// cpu returns the processor time of the process and its descendants, and of ended ones that they have waited
// for.
func (s *server) cpu() (sum time.Duration) {
	const ticks = 100 // USER_HZ of Linux
	parents, used := map[int]int{}, map[int]time.Duration{}
	all, _ := procfs.AllProcs()
	for _, p := range all {
		if stat, err := p.Stat(); err == nil {
			parents[p.PID] = stat.PPID
			used[p.PID] = time.Duration(int(stat.UTime+stat.STime)+stat.CUTime+stat.CSTime) * time.Second / ticks
		}
	}
	for pid := range used {
		for up, hops := pid, 0; up > 1 && hops < 100; up, hops = parents[up], hops+1 {
			if up == s.cmd.Process.Pid {
				sum += used[pid]
				break
			}
		}
	}
	return sum
}
