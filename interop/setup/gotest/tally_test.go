package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// feed runs a tally over the stream of events that go test writes.
func feed(t *testing.T, lines ...string) (string, *tally) {
	t.Helper()
	var out bytes.Buffer
	tally := newTally(&out)
	require.NoError(t, tally.read(strings.NewReader(strings.Join(lines, "\n")+"\n")))
	tally.summary()
	return out.String(), tally
}

func TestSummaryCountsSubtestsNotParents(t *testing.T) {
	out, tally := feed(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"run","Package":"p","Test":"TestA/one"}`,
		`{"Action":"run","Package":"p","Test":"TestA/two"}`,
		`{"Action":"pass","Package":"p","Test":"TestA/one"}`,
		`{"Action":"output","Package":"p","Test":"TestA/two","Output":"    a_test.go:3: no device shows\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA/two","Output":"    --- SKIP: TestA/two (0.00s)\n"}`,
		`{"Action":"skip","Package":"p","Test":"TestA/two"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p","Elapsed":1.5}`,
		`{"Action":"skip","Package":"q"}`)
	require.Equal(t, 1, tally.passed)
	require.Contains(t, out, "  p TestA/two: no device shows\n")
	require.True(t, strings.HasSuffix(out, "\n1 passed, 0 failed, 1 skipped\n"), out)
}

func TestFailuresAreShownAndCounted(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		want  []string
	}{
		{"a test", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: got 2\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"a_test.go:3: got 2", "  p TestA\n", "0 passed, 1 failed, 0 skipped\n"}},
		{"a subtest, once", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"run","Package":"p","Test":"TestA/x"}`,
			`{"Action":"output","Package":"p","Test":"TestA/x","Output":"        a_test.go:3: got 2\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA/x"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"--- FAIL: TestA (0.00s)\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"got 2", "  p TestA/x\n", "0 passed, 1 failed, 0 skipped\n"}},
		{"the build", []string{
			`{"ImportPath":"p [p.test]","Action":"build-output","Output":"p.go:1: syntax error\n"}`,
			`{"ImportPath":"p [p.test]","Action":"build-fail"}`,
			`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
			`{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`,
		}, []string{"p.go:1: syntax error", "p (does not compile)", "0 passed, 1 failed, 0 skipped\n"}},
		{"a crash", []string{
			`{"Action":"run","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"SIGSEGV: segmentation violation\n"}`,
			`{"Action":"output","Package":"p","Output":"exit status 2\n"}`,
			`{"Action":"fail","Package":"p"}`,
		}, []string{"SIGSEGV", "exit status 2", "p (outside its tests)", "0 passed, 1 failed, 0 skipped\n"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, _ := feed(t, test.lines...)
			for _, want := range test.want {
				require.Contains(t, out, want)
			}
		})
	}
}

func TestReason(t *testing.T) {
	tests := []struct{ output, want string }{
		{"=== RUN   TestA\n    a_test.go:12: needs two devices\n--- SKIP: TestA (0.00s)\n", "needs two devices"},
		{"    a_test.go:12: line one\n        line two\n", "line one line two"},
		{"--- SKIP: TestA (0.00s)\n", "(no reason given)"},
	}
	for _, test := range tests {
		require.Equal(t, test.want, reason(test.output))
	}
}

func TestOtherOutputPassesThrough(t *testing.T) {
	out, _ := feed(t, "# github.com/x/y", `{"Action":"pass","Package":"p"}`)
	require.Contains(t, out, "# github.com/x/y\n")
}
