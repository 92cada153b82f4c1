// Command wheel builds the Python package usmbridge as a wheel: its Python sources and
// a shared library for CPython 3.11 and newer (stable ABI) with the Go code in it, in
// dist/usmbridge-VERSION-cp311-abi3-PLATFORM.whl. The platform names the oldest
// glibc that the library needs. It needs Go and a C compiler, and no Python.
//
// With -zig it is compiled by the C compiler of the package ziglang for glibc 2.28; what
// the library asks for is audited in any case.
//
//	go run ./internal/tools/wheel [-out dist] [-zig python] [-reproduce]
package main
