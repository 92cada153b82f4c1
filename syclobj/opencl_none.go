//go:build !(linux && cgo)

package syclobj

// ConfigureOpenCL does nothing without SYCL.
func ConfigureOpenCL(string) (string, error) { return "none: SYCL needs Linux and cgo", nil }
