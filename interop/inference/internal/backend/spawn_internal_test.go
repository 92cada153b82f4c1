package backend

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinesOfWorkers checks that each line is one log record, also if two workers write at the same
// time.
func TestLinesOfWorkers(t *testing.T) {
	var b strings.Builder
	l := lines{log: slog.New(slog.NewTextHandler(&b, nil))}
	for _, piece := range []string{"one half", "another worker's\n", " and the other\n\n", "a\nb\n"} {
		n, err := l.Write([]byte(piece))
		require.NoError(t, err)
		require.Equal(t, len(piece), n)
	}
	var got []string
	for record := range strings.Lines(b.String()) {
		_, line, _ := strings.Cut(strings.TrimSpace(record), "line=")
		got = append(got, strings.Trim(line, `"`))
	}
	require.Equal(t, []string{"one half", "another worker's", " and the other", "a", "b"}, got)
}

// A crash dump of a worker does not fill the log.
func TestLinesAreBounded(t *testing.T) {
	var b strings.Builder
	l := lines{log: slog.New(slog.NewTextHandler(&b, nil))}
	_, err := l.Write([]byte(strings.Repeat("goroutine\n", 10000) + strings.Repeat("x", 1<<20)))
	require.NoError(t, err)
	require.Equal(t, maxLines+1, strings.Count(b.String(), "\n"))
	require.Contains(t, b.String(), "dropped")
	l.from = l.from.Add(-2 * logInterval)
	_, err = l.Write([]byte("again\n" + strings.Repeat("x", 1<<20)))
	require.NoError(t, err)
	require.Contains(t, b.String(), "lines=9801")
	require.Contains(t, b.String(), "line=again")
	require.Less(t, b.Len(), 64<<10)
}
