//go:build race

package pymodule_test

func init() { hostFlags = append(hostFlags, "-race") }
