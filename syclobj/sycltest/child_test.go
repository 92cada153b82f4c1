package sycltest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSkipReason(t *testing.T) {
	for _, c := range []struct{ name, out, want string }{
		{"passed", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n", ""},
		{"skipped", "=== RUN   TestA\n    a_test.go:7: no device: none\n--- SKIP: TestA (0.00s)\nPASS\n", "no device: none"},
		{"skipped without a reason", "--- SKIP: TestA (0.00s)\n", "skipped in the child process"},
	} {
		require.Equal(t, c.want, skipReason(c.out), c.name)
	}
}

func TestChildArguments(t *testing.T) {
	args := childArguments("TestA/b.c/d+")
	require.Equal(t, `-test.run=^TestA$/^b\.c$/^d\+$`, args[0])
	require.Contains(t, args, "-test.count=1")
}

func TestMachineText(t *testing.T) {
	require.Equal(t, "\n", NoDevice.text())
	require.Equal(t, "\nplatform 131072 Fake Level Zero\n"+
		"device 16 68719476736 512 2 14 Fake GPU A\ndevice 16 68719476736 512 2 14 Fake GPU B\n"+
		"platform 262144 Fake OpenCL\ndevice 4 1073741824 8 0 14 Fake CPU\n", TwoGPUs.text())
}
