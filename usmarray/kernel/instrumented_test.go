//go:build race || asan

package kernel_test

// instrumented tells that pools of objects are emptied at random, and that what would lie on
// a stack is allocated.
const instrumented = true
