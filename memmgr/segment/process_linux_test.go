package segment_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
	"github.com/usmbridge/usmbridge/memmgr/segment"
)

// A peer is this test binary as another process: it runs peers[name]. It reads lines from its standard input and answers
// with lines.
const peerEnv = "USMBRIDGE_TEST_PEER"

// talk is a peer's end of the connection.
type talk struct{ in *bufio.Scanner }

func (t talk) hear() string {
	if !t.in.Scan() {
		os.Exit(0) // the other side is done
	}
	return t.in.Text()
}

func (t talk) say(format string, a ...any) { fmt.Printf(format+"\n", a...) }

func init() {
	runPeer = func() {
		if name := os.Getenv(peerEnv); name != "" {
			peers[name](talk{bufio.NewScanner(os.Stdin)})
			os.Exit(0)
		}
	}
}

// peer is the test's end of the connection.
type peer struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startPeer starts a peer, which inherits the files from descriptor 3 on.
func startPeer(t testing.TB, name string, files ...*os.File) *peer {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerEnv+"="+name)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = files
	in := testenv.Must(cmd.StdinPipe())(t)
	out := testenv.Must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	p := &peer{t, cmd, in, bufio.NewScanner(out)}
	return p
}

// ask sends a line and returns the answer.
func (p *peer) ask(format string, a ...any) string {
	p.t.Helper()
	_, err := fmt.Fprintf(p.in, format+"\n", a...)
	require.NoError(p.t, err)
	return p.hear()
}

func (p *peer) hear() string {
	p.t.Helper()
	require.True(p.t, p.out.Scan(), "the peer ended: %v", p.out.Err())
	return p.out.Text()
}

// end makes the peer exit, and returns its status.
func (p *peer) end() error {
	p.in.Close()
	return p.cmd.Wait()
}

// held lists the mappings and descriptors of this package in a process.
type held struct {
	files, maps           int
	mappings, descriptors int
}

func holding(t testing.TB) (h held) {
	links := testenv.Must(filepath.Glob("/proc/self/fd/*"))(t)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "/memfd:usmbridge") {
			h.files++
		}
	}
	text := testenv.Must(os.ReadFile("/proc/self/maps"))(t)
	h.maps = strings.Count(string(text), "/memfd:usmbridge")
	h.mappings, h.descriptors = segment.InUse()
	return h
}

// nothingStays checks that a test leaves no mapping and no descriptor.
func nothingStays(t testing.TB) {
	before := holding(t)
	t.Cleanup(func() {
		memmgr.Flush()
		require.Equal(t, before, holding(t), "open files, mappings and their counts in the package")
	})
}

// logged returns the records that the logger received meanwhile.
func logged(f func()) string {
	var b bytes.Buffer
	memmgr.SetLogger(slog.New(slog.NewTextHandler(&b, nil)))
	defer memmgr.SetLogger(nil)
	f()
	return b.String()
}

func fdText(f *os.File) string { return strconv.Itoa(int(f.Fd())) }
