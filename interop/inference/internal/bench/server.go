package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a process that serves, with those that it starts.
type server struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{}
	said  bytes.Buffer // on its standard error; read after ended
}

// start runs a program and waits until a line of its standard output contains ready.
func start(name, ready string, env []string, argv ...string) (*server, error) {
	s := &server{name: name, ended: make(chan struct{})}
	s.cmd = exec.Command(argv[0], argv[1:]...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stderr = &s.said
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	listening := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), ready) {
				select {
				case listening <- true:
				default:
				}
			}
		}
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	select {
	case <-listening:
		return s, nil
	case <-s.ended:
		return nil, fmt.Errorf("%s ended at its start: %s", name, tail(s.said.String()))
	case <-time.After(3 * time.Minute):
		_ = s.stop()
		return nil, fmt.Errorf("%s: not ready after three minutes", name)
	}
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

func tail(s string) string {
	if len(s) > 1500 {
		s = "…" + s[len(s)-1500:]
	}
	return strings.TrimSpace(s)
}

// freePorts returns free ports of this machine.
func freePorts(n int) ([]string, error) {
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all, nil
}

// cpu returns the processor time of the process and its descendants, and of ended ones that they have waited
// for, from /proc.
func (s *server) cpu() (sum time.Duration) {
	const ticks = 100 // USER_HZ of Linux
	parents, used := map[int]int{}, map[int]time.Duration{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// The name, in parentheses, may contain anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		number := func(i int) (n int) { n, _ = strconv.Atoi(fields[i-3]); return n }
		parents[pid] = number(4)
		used[pid] = time.Duration(number(14)+number(15)+number(16)+number(17)) * time.Second / ticks
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
