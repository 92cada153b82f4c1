//go:build !race && !asan

package segment_test

const instrumented = false
