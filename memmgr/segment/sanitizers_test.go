//go:build race || asan

package segment_test

// instrumented reports that system calls and memory accesses cost several times as much.
const instrumented = true
