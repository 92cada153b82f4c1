//go:build !race && !asan

package kernel_test

const instrumented = false
