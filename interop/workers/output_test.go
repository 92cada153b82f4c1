package workers

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLastOutput checks which part of the output Death.LastOutput contains. The last crash report of
// Go is shortened, if it has goroutine stacks; other text that begins like a crash report is not.
func TestLastOutput(t *testing.T) {
	stacks := "\n\ngoroutine 1 [running]:\n" + strings.Repeat("main.f()\n\t/main.go:1 +0x1\n", 500)
	steps := strings.Repeat("a line of the model\n", 100)
	for name, c := range map[string]struct {
		output      string
		has, hasNot []string
	}{
		"plain":                {steps + "the end\n", []string{"a line", "the end"}, []string{"…"}},
		"a crash":              {steps + "SIGSEGV: segmentation violation" + stacks, []string{"a line", "SIGSEGV", "goroutine 1", "…"}, nil},
		"printed, and the end": {"fatal error: no such file\n" + steps + "the end\n", []string{"the end"}, []string{"…"}},
		"printed at the end":   {steps + "panic: at the disco\n", []string{"disco"}, []string{"…"}},
		"printed, and a crash": {"fatal error: no such file\n" + steps + "about to fault\nSIGABRT: abort" + stacks,
			[]string{"about to fault", "SIGABRT", "…"}, nil},
		"recovered, and a crash": {"panic: one" + stacks + steps + "on it goes\npanic: two" + stacks, []string{"on it goes", "panic: two", "…"}, nil},
		"much, and the end":      {"panic: one\n" + strings.Repeat(steps, 10) + "the end\n", []string{"the end"}, []string{"panic"}},
	} {
		t.Run(name, func(t *testing.T) {
			var o output
			o.keep([]byte(c.output))
			output := o.last()
			require.LessOrEqual(t, len(output), lastOutput)
			for _, s := range c.has {
				require.Contains(t, output, s)
			}
			for _, s := range c.hasNot {
				require.NotContains(t, output, s)
			}
		})
	}
}

// blocked is a writer whose Write blocks until release is closed.
type blocked struct{ entered, release chan struct{} }

func (b *blocked) Write(p []byte) (int, error) {
	b.entered <- struct{}{}
	<-b.release
	return len(p), nil
}

// TestOutputBlocks checks that output.last does not wait for a blocked writer.
func TestOutputBlocks(t *testing.T) {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	w := &blocked{make(chan struct{}, 10), make(chan struct{})}
	o := follow(from, &outlet{to: w})
	_, err = to.WriteString("the last output\n")
	require.NoError(t, err)
	<-w.entered
	require.False(t, within(time.Millisecond, o.done))
	require.Equal(t, "the last output", o.last())
	require.NoError(t, to.Close())
	close(w.release)
	require.True(t, within(time.Minute, o.done), "it does not end")
}
