package usmarray

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
	"github.com/usmbridge/usmbridge/memmgr"
)

// TestLeakedArrays: with USMBRIDGE_DEBUG=leaks an array that was not released is counted and reported, and
// released arrays are not.
func TestLeakedArrays(t *testing.T) {
	if os.Getenv("USMBRIDGE_TEST_CHILD") == "" {
		out, err := inChild(t, "leaks")
		require.NoError(t, err, out)
		require.Contains(t, out, "as wanted", "the child ran to its end")
		require.Contains(t, out, "an array float32 [3 5] was collected without Release; its memory of 60 bytes stays allocated")
		require.Contains(t, out, "forgetArray")
		require.NotContains(t, out, "[7]", "released")
		return
	}
	forgetArray(t)
	for range 100 {
		a := testenv.Must(New(memmgr.Host(), Float64, []int{7}))(t)
		second := a.Retain()
		a.Release()
		second.Release()
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		n, bytes := Leaked()
		return n == 1 && bytes == 60
	}, time.Minute, time.Millisecond)
	for range 10 { // no more reports
		runtime.GC()
	}
	n, _ := Leaked()
	require.EqualValues(t, 1, n)
	fmt.Println("as wanted")
	os.Exit(0) // TestMain would report the leaked memory
}

//go:noinline
func forgetArray(t *testing.T) {
	require.True(t, testenv.Must(New(memmgr.Host(), Float32, []int{3, 5}))(t).Valid())
}

// inChild runs the calling test in a child process with USMBRIDGE_DEBUG=words.
func inChild(t *testing.T, words string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(os.Environ(), memmgr.DebugEnv+"="+words, "USMBRIDGE_TEST_CHILD=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
