package backend

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pieces of two workers that write at the same time are not put together.
func TestLinesOfWorkers(t *testing.T) {
	var b strings.Builder
	l := lines{slog.New(slog.NewTextHandler(&b, nil))}
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
