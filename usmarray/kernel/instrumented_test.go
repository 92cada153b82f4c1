//go:build race || asan

package kernel_test

// instrumented reports that pools of objects are emptied at random, and that variables
// of the stack are allocated on the heap.
const instrumented = true
