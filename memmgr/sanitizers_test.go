//go:build race || asan

package memmgr_test

const instrumented = true
