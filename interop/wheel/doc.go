// Command wheel builds the Python module usmbridge as a wheel: a shared library
// for CPython 3.11 and newer (stable ABI) with the Go code in it, in
// dist/usmbridge-VERSION-cp311-abi3-PLATFORM.whl. The platform names the oldest
// glibc that the library needs. It needs Go and a C compiler, and no Python.
//
//	go run ./interop/wheel [-out dist]
package main
