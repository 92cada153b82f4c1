package workers

import (
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// lastWords is how many bytes of a worker's output its Death has at most, and kept of how many
// they are chosen.
const (
	lastWords = 8 << 10
	kept      = 64 << 10
)

// output passes on what a worker writes, and keeps the end of it.
type output struct {
	mu   sync.Mutex
	kept []byte
	done chan struct{}
}

// outlet is where the output of all workers goes, one piece at a time.
type outlet struct {
	mu sync.Mutex
	to io.Writer
}

func (o *outlet) write(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.to.Write(b) // nobody could be told
}

// follow reads until the end of the pipe, or its deadline.
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

// wait waits for the end of the pipe, or for a while: nobody knows how long Config.Output takes
// for a piece.
func (o *output) wait(while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}

func (o *output) keep(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, b...)
	if n := len(o.kept) - kept; n > kept {
		o.kept = append(o.kept[:0], o.kept[n:]...)
	}
}

// crash is how the report of Go's runtime begins; it goes on with all its stacks, which tell
// little of what C code did, and each of which begins as stack says. A function may print
// the like of the first and go on.
var (
	crash = regexp.MustCompile(`(?m)^(SIG[A-Z]+: |fatal error: |panic: )`)
	stack = regexp.MustCompile(`(?m)^goroutine [0-9]+ .*\[`)
)

// crashWords is how much of such a report is among the last words.
const crashWords = 1 << 10

// words are the last lines, as far as they are kept.
func (o *output) words() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := string(o.kept)
	if all := crash.FindAllStringIndex(s, -1); all != nil {
		at := all[len(all)-1][0]
		if len(s)-at > crashWords && stack.MatchString(s[at:]) {
			s = s[:at+crashWords]
			s = s[:max(strings.LastIndexByte(s, '\n'), at)] + "\n…"
		}
	}
	if len(s) > lastWords {
		s = s[len(s)-lastWords:]
		if _, rest, ok := strings.Cut(s, "\n"); ok {
			s = rest // whole lines
		}
	}
	return strings.TrimRight(strings.ToValidUTF8(s, "\uFFFD"), "\n")
}
