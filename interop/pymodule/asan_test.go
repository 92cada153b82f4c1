//go:build asan

package pymodule_test

func init() { hostFlags = append(hostFlags, "-asan") }
