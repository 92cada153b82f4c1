package workers

import (
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
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

func (o *output) keep(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, b...)
	if n := len(o.kept) - kept; n > kept {
		o.kept = append(o.kept[:0], o.kept[n:]...)
	}
}

// crash is how the report of Go's runtime begins; it goes on with all its stacks, which tell
// little of what C code did.
var crash = regexp.MustCompile(`(?m)^(SIG[A-Z]+: |fatal error: |panic: )`)

// crashWords is how much of such a report is among the last words.
const crashWords = 1 << 10

// words are the last lines, as far as they are kept.
func (o *output) words() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := string(o.kept)
	if at := crash.FindStringIndex(s); at != nil && len(s)-at[0] > crashWords {
		s = s[:at[0]+crashWords]
		s = s[:max(strings.LastIndexByte(s, '\n'), at[0])] + "\n…"
	}
	if len(s) > lastWords {
		s = s[len(s)-lastWords:]
		if _, rest, ok := strings.Cut(s, "\n"); ok {
			s = rest // whole lines
		}
	}
	return strings.TrimRight(strings.ToValidUTF8(s, "\uFFFD"), "\n")
}
