//go:build !(linux && cgo)

package syclobj

// ConfigureOpenCL does nothing where there is no SYCL.
func ConfigureOpenCL(string) string { return "none: SYCL needs Linux and cgo" }
