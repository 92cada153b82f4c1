package workers

import (
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
)

// lastOutput is the maximum number of bytes of a worker's output in its Death. They are chosen from the last kept
// bytes.
const (
	lastOutput = 8 << 10
	kept       = 64 << 10
)

// output copies the output of a worker to an outlet and keeps its end.
type output struct {
	mu   sync.Mutex
	kept []byte
	done chan struct{}
}

// outlet writes the output of all workers to one writer, one piece at a time.
type outlet struct {
	mu sync.Mutex
	to io.Writer
}

func (o *outlet) write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.to.Write(b) // there is no one to report an error to
}

// follow reads until the end of the pipe or its deadline.
func follow(pipe *os.File, to *outlet) *output {
	o := &output{done: make(chan struct{})}
	go func() {
		defer close(o.done)
		defer pipe.Close()
		b := make([]byte, 4<<10)
		for {
			n, err := pipe.Read(b)
			o.keep(b[:n])
			if n > 0 {
				to.write(b[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return o
}

func (o *output) keep(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, b...)
	if n := len(o.kept) - kept; n > kept {
		o.kept = append(o.kept[:0], o.kept[n:]...)
	}
}

// crash matches the beginning of a crash report of Go's runtime. The stacks of all goroutines
// follow, each of which begins with a match of stack; they are of little use for a crash in C
// code. A function may also print such a beginning and continue.
var (
	crash = regexp.MustCompile(`(?m)^(SIG[A-Z]+: |fatal error: |panic: )`)
	stack = regexp.MustCompile(`(?m)^goroutine [0-9]+ .*\[`)
)

// crashOutput is the maximum number of bytes of such a report in the last output.
const crashOutput = 1 << 10

// last returns the last complete lines that are kept.
func (o *output) last() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := string(o.kept)
	if all := crash.FindAllStringIndex(s, -1); all != nil {
		at := all[len(all)-1][0]
		if len(s)-at > crashOutput && stack.MatchString(s[at:]) {
			s = s[:at+crashOutput]
			s = s[:max(strings.LastIndexByte(s, '\n'), at)] + "\n…"
		}
	}
	if len(s) > lastOutput {
		s = s[len(s)-lastOutput:]
		if _, rest, ok := strings.Cut(s, "\n"); ok {
			s = rest // whole lines
		}
	}
	return strings.TrimRight(strings.ToValidUTF8(s, "\uFFFD"), "\n")
}
