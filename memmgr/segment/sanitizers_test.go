//go:build race || asan

package segment_test

// instrumented tells that each system call and access costs several times as much.
const instrumented = true
